// What PEFT's files say of adapters.
#include <algorithm>
#include <iterator>

#include "models/library_names.h"
#include "models/peft_settings.h"

namespace strait::models {
namespace {

ModuleNames saved_from_peft(const FileNames& names, const ModuleNames& parts,
                            const ModuleNames& modules) {
  ModuleNames saved;
  for (const std::string& part : parts) {
    const std::string own = without_ending(own_name(names, part + kOfWeight.data()));
    ModuleNames chosen;
    bool same = true;
    for (const std::string& module : modules) {
      const bool meant = module_in_library(names, module).ends_with(part);
      if (meant) chosen.push_back(module);
      same = same && (!meant || ends_with_module(module, own));
    }
    if (same) chosen = {own};
    std::ranges::copy(chosen, std::back_inserter(saved));
  }
  return saved;
}

// Erases the tensors of all experts of a block whose matrices are targets, too.
void erase_added_parameters(Lora& lora) {
  std::erase_if(lora.parameters, [&](const std::string& tensor) {
    if (!ends_with_module(tensor, kDownOfAll) && !ends_with_module(tensor, kGateAndUp))
      return false;
    const std::string experts = without_ending(tensor) + ".";
    return std::ranges::any_of(
        lora.targets, [&](const std::string& target) { return target.starts_with(experts); });
  });
}

// Without the patterns that lora_for_peft() has added.
template <class Value>
void erase_added_patterns(std::map<std::string, Value>& values) {
  values.erase(kGateAndUp);
  values.erase(kDownOfAll);
  const std::map<std::string, Value> before = values;
  for (const auto& [pattern, value] : before) values.erase(pattern_of_weight(pattern));
}

// Targets and patterns for the names that the text part has in the library's larger model.
void take_library_names(const FileNames& names, const ModuleNames& modules, Lora& lora) {
  const auto in_library = [&](const std::string& own) { return module_in_library(names, own); };
  const auto as_it_is = [](const std::string& own) { return own; };
  lora.ranks = renamed_patterns<std::int64_t>(lora.ranks, modules, in_library, as_it_is);
  lora.alphas = renamed_patterns<double>(lora.alphas, modules, in_library, as_it_is);
  if (lora.pattern.empty() || lora.pattern == kNoMatrix) return;
  const std::regex whole = compile_pattern(lora.pattern);
  ModuleNames chosen;
  for (const std::string& module : modules) {
    if (std::regex_match(in_library(module), whole)) chosen.push_back(module);
  }
  if (chosen.empty()) return;  // made over the text part alone, whose names are those here
  lora.targets = chosen;
  lora.pattern.clear();
}

}  // namespace

Lora lora_from_peft(const ModelConfig& config, Lora lora) {
  const FileNames& names = family_of(config).names;
  const ModuleNames modules = modules_of(describe(config));
  lora.saved = saved_from_peft(names, lora.saved, modules);
  for (std::string& target : lora.targets) target = own_name(names, target);
  for (std::string& tensor : lora.parameters) tensor = own_name(names, tensor);
  if (!names.module.empty()) take_library_names(names, modules, lora);
  // ModuleNames of weights beside a pattern of targets, or beside all matrices, stay and are
  // refused.
  if (!lora.targets.empty() || lora.pattern == kNoMatrix) {
    std::erase_if(lora.parameters, [&](const std::string& tensor) {
      if (!tensor.ends_with(kOfWeight)) return false;
      lora.targets.push_back(without_ending(tensor));
      return true;
    });
    if (names.peft_experts == PeftExperts::by_parameters) erase_added_parameters(lora);
    if (!lora.targets.empty()) lora.pattern.clear();
  }
  if (names.peft_experts != PeftExperts::as_named) {
    erase_added_patterns(lora.ranks);
    erase_added_patterns(lora.alphas);
  }
  return lora;
}

Lora with_own_names(const ModelConfig& config, Lora lora) {
  const FileNames& names = family_of(config).names;
  for (std::string& module : lora.saved) {
    module = without_ending(own_name(names, module + kOfWeight.data()));
  }
  for (std::string& target : lora.targets) target = own_name(names, target);
  for (std::string& tensor : lora.parameters) tensor = own_name(names, tensor);
  return lora;
}

}  // namespace strait::models
