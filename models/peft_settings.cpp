#include "models/peft_settings.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <iterator>
#include <set>

#include "models/library_names.h"

namespace strait::models {
namespace {

// "self_attn.q_proj" of "model.layers.3.self_attn.q_proj".
std::string part_in_block(const std::string& name) {
  std::size_t begin = 0;
  while (begin < name.size()) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    const bool number = std::all_of(name.begin() + static_cast<std::ptrdiff_t>(begin),
                                    name.begin() + static_cast<std::ptrdiff_t>(end),
                                    [](unsigned char c) { return std::isdigit(c); });
    begin = end + 1;
    if (number && begin < name.size()) return name.substr(begin);
  }
  return name;
}

// The library's names of these matrices, which fit no other one: without the block if all blocks
// with such a matrix are chosen, and the larger model of which this may be a part has no such
// names.
std::set<std::string> exact_names(const FileNames& names, const ModuleNames& all,
                                  const ModuleNames& chosen) {
  std::map<std::string, std::int64_t> others;
  for (const std::string& name : all) ++others[part_in_block(name)];
  for (const std::string& name : chosen) --others[part_in_block(name)];
  std::set<std::string> exact;
  for (const std::string& name : chosen) {
    const std::string part = part_in_block(name);
    const bool short_form = names.module.empty() && others[part] == 0;
    exact.insert(short_form ? part : module_in_library(names, name));
  }
  return exact;
}

// PEFT saves every module whose name ends so, also within a part of it: "norm" is all norms.
ModuleNames saved_for_peft(const FileNames& names, const Lora& lora, const ModuleNames& modules) {
  ModuleNames saved;
  for (const std::string& part : lora.saved) {
    const std::string in_library = module_in_library(names, part);
    ModuleNames chosen;
    bool same = names.module.empty();
    for (const std::string& module : modules) {
      const bool meant = ends_with_module(module, part);
      const std::string name = module_in_library(names, module);
      if (meant) chosen.push_back(name);
      same = same && meant == name.ends_with(in_library);
    }
    if (same || chosen.empty()) chosen = {in_library};
    std::ranges::copy(chosen, std::back_inserter(saved));
  }
  return saved;
}

// PEFT has one rank and one alpha for gate and up of all experts, twice those of one matrix, and it
// knows neither patterns for single experts nor that rsLoRA's factor has a root.
void add_patterns_of_experts(const FileNames& names, const Lora& own, const ModuleNames& adapted,
                             Lora& lora) {
  const bool plain = own.ranks.empty() && own.alphas.empty() && !own.rank_stabilized;
  if (names.peft_experts == PeftExperts::by_last_parts && plain) return;
  for (const std::string& matrix : adapted) {
    const bool down = is_down(names, matrix);
    const char* pattern = down ? kDownOfAll : kGateAndUp;
    if (!is_of_one_expert(matrix) || lora.ranks.contains(pattern)) continue;
    const AdapterShape shape = *adapter_of(own, matrix);
    const std::int64_t rank = down ? shape.rank : 2 * shape.rank;
    const auto size = static_cast<double>(rank);
    lora.ranks.emplace(pattern, rank);
    lora.alphas.emplace(pattern, shape.scale * (own.rank_stabilized ? std::sqrt(size) : size));
  }
}

template <class Value>
void add_patterns_of_weights(std::map<std::string, Value>& values) {
  const std::map<std::string, Value> before = values;
  for (const auto& [pattern, value] : before) values.emplace(pattern_of_weight(pattern), value);
}

// The settings where names of matrices alone would mean others to PEFT: it makes target_parameters
// of all targets whose names are those of matrices of experts, or it makes none of them. A matrix
// that no expert has is then the parameter "weight" of its module.
Lora with_parameters(const FileNames& names, Lora lora, const ModuleNames& all,
                     const ModuleNames& adapted) {
  ModuleNames modules;
  ModuleNames weights;
  std::set<std::string> tensors;
  std::set<std::string> all_tensors;
  for (const std::string& matrix : adapted) {
    if (is_taken_for_experts(names, matrix)) {
      weights.push_back(matrix);
      continue;
    }
    // Their own names are for models whose experts are modules, as in transformers 4.
    modules.push_back(matrix);
    if (names.peft_experts == PeftExperts::by_parameters && is_of_one_expert(matrix)) {
      tensors.insert(tensor_in_peft(names, matrix));
    }
  }
  for (const std::string& matrix : all) {
    if (is_of_one_expert(matrix)) all_tensors.insert(tensor_in_peft(names, matrix));
  }
  const std::set<std::string> targets = exact_names(names, all, modules);
  std::set<std::string> parameters = exact_names(names, {all_tensors.begin(), all_tensors.end()},
                                                 {tensors.begin(), tensors.end()});
  for (const std::string& name : exact_names(names, all, weights)) {
    parameters.insert(name + kOfWeight.data());
  }
  if (!weights.empty()) {
    add_patterns_of_weights(lora.ranks);
    add_patterns_of_weights(lora.alphas);
  }
  lora.targets.assign(targets.begin(), targets.end());
  lora.parameters.assign(parameters.begin(), parameters.end());
  lora.pattern = targets.empty() ? kNoMatrix : "";
  lora.blocks.clear();
  lora.dropout = 0;
  return lora;
}

bool needs_parameters(const FileNames& names, const Lora& lora, const ModuleNames& adapted) {
  if (lora.decomposed || !lora.parameters.empty()) return false;
  return std::ranges::any_of(adapted, [&](const std::string& matrix) {
    return is_taken_for_experts(names, matrix) ||
           (names.peft_experts == PeftExperts::by_parameters && is_of_one_expert(matrix));
  });
}

// ModuleNames of matrices in `lora`, where PEFT means the same by them.
Lora with_targets(const FileNames& names, Lora lora, const ModuleNames& adapted) {
  // Whole names where only some blocks have adapters, or other parts of the library's model have
  // matrices of the same names.
  const bool whole = !lora.blocks.empty() || !names.module.empty();
  bool of_single_experts = false;
  std::set<std::string> targets;
  std::set<std::string> parameters;
  for (const std::string& matrix : adapted) {
    const std::string joined = lora.parameters.empty() ? "" : tensor_of_experts(matrix);
    if (is_of_one_expert(matrix)) lora.dropout = 0;
    of_single_experts |= joined.empty() && is_of_one_expert(matrix);
    if (!joined.empty()) {
      parameters.insert(name_in_library(names, joined));
    } else {
      targets.insert(whole ? module_in_library(names, matrix)
                           : matrix.substr(matrix.rfind('.') + 1));
    }
  }
  // PEFT applies numbers of blocks to targets only.
  const bool of_blocks = !lora.blocks.empty() && !lora.parameters.empty();
  if (of_blocks) lora.parameters.assign(parameters.begin(), parameters.end());
  const bool by_names = whole || (of_single_experts && lora.pattern.empty());
  const bool named = !lora.targets.empty() && names.module.empty() && !of_blocks;
  if (!by_names || named) return lora;
  lora.targets.assign(targets.begin(), targets.end());
  lora.pattern = targets.empty() ? kNoMatrix : "";
  lora.blocks.clear();
  return lora;
}

// ---- what PEFT does not read --------------------------------------------------------------------

// Whether in each block all experts have adapters of a matrix or none, and of up those of gate.
bool have_whole_experts(const FileNames& names, const ModuleNames& modules,
                        const ModuleNames& adapted) {
  std::map<std::string, std::int64_t> without;  // experts, by "model.layers.1.mlp.experts.up_proj"
  std::set<std::string> with;
  for (const std::string& module : modules) {
    if (is_of_one_expert(module)) ++without[tensor_of_experts(module)];
  }
  for (const std::string& matrix : adapted) {
    if (!is_of_one_expert(matrix)) continue;
    with.insert(tensor_of_experts(matrix));
    --without[tensor_of_experts(matrix)];
  }
  return std::ranges::all_of(with, [&](const std::string& tensor) {
    if (without[tensor] != 0) return false;
    if (is_down(names, tensor)) return true;
    const std::string block = without_ending(tensor) + ".";
    return with.contains(block + names.expert_parts[0]) &&
           with.contains(block + names.expert_parts[1]);
  });
}

template <class Value>
bool any_fits(const std::map<std::string, Value>& values, const std::string& name) {
  return std::ranges::any_of(values, [&](const auto& pattern_and_value) {
    return std::regex_match(name, compile_ending(pattern_and_value.first));
  });
}

// Whether PEFT's one rank and alpha of all gates and ups, and those of all downs, are of each. A
// pattern of the user that fits PEFT's name of them counts there before the added one.
bool have_one_shape(const FileNames& names, const Lora& lora, const ModuleNames& adapted) {
  std::map<bool, AdapterShape> shapes;
  for (const std::string& matrix : adapted) {
    if (!is_of_one_expert(matrix)) continue;
    const AdapterShape shape = *adapter_of(lora, matrix);
    const bool down = is_down(names, matrix);
    const auto [first, added] = shapes.emplace(down, shape);
    if (first->second.rank != shape.rank || first->second.scale != shape.scale) return false;
    if (down || !added) continue;
    const std::string tensor = tensor_in_peft(names, matrix);
    if (any_fits(lora.ranks, tensor) || any_fits(lora.alphas, tensor)) return false;
  }
  return true;
}

}  // namespace

Lora lora_for_peft(const ModelConfig& config) {
  const FileNames& names = family_of(config).names;
  const ModelDescription model = describe(config);
  const ModuleNames modules = modules_of(model);
  const ModuleNames adapted = adapted_modules(model);
  const Lora& own = *config.lora;
  Lora lora = needs_parameters(names, own, adapted) ? with_parameters(names, own, modules, adapted)
                                                    : with_targets(names, own, adapted);
  lora.saved = saved_for_peft(names, own, modules);
  if (!names.module.empty()) {
    const auto as_it_is = [](const std::string& matrix) { return matrix; };
    const auto in_library = [&](const std::string& matrix) {
      return module_in_library(names, matrix);
    };
    lora.ranks = renamed_patterns<std::int64_t>(own.ranks, adapted, as_it_is, in_library);
    lora.alphas = renamed_patterns<double>(own.alphas, adapted, as_it_is, in_library);
  }
  if (names.peft_experts != PeftExperts::as_named) {
    add_patterns_of_experts(names, own, adapted, lora);
  }
  return lora;
}

std::string unread_by_peft(const ModelConfig& config) {
  const FileNames& names = family_of(config).names;
  const Lora& lora = *config.lora;
  const ModelDescription model = describe(config);
  const ModuleNames adapted = adapted_modules(model);
  if (lora.decomposed) {
    if (std::ranges::any_of(adapted, is_of_one_expert)) return "loads no DoRA of experts";
    const bool taken = std::ranges::any_of(
        adapted, [&](const std::string& matrix) { return is_taken_for_experts(names, matrix); });
    return taken ? "loads no DoRA of matrices that are called as those of experts" : "";
  }
  if (names.peft_experts == PeftExperts::as_named ||
      std::ranges::none_of(adapted, is_of_one_expert)) {
    return "";
  }
  if (!names.module.empty()) {
    return "reads no adapters of experts over a model of text and images";
  }
  if (have_whole_experts(names, modules_of(model), adapted) &&
      have_one_shape(names, lora, adapted)) {
    return "";
  }
  return "reads adapters of experts only if all experts of a block have them, with one rank and "
         "one alpha, and both gate and up or neither";
}

}  // namespace strait::models
