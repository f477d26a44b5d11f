#include "models/library_names.h"

#include <algorithm>
#include <set>

namespace strait::models {

std::string without_ending(const std::string& name) { return name.substr(0, name.rfind('.')); }

ModuleNames modules_of(const ModelDescription& model) {
  std::set<std::string> modules;
  for (const TensorShape& tensor : model.tensors()) modules.insert(without_ending(tensor.name));
  return {modules.begin(), modules.end()};
}

ModuleNames adapted_modules(const ModelDescription& model) {
  ModuleNames adapted;
  for (const TensorShape& tensor : model.trained_tensors()) {
    if (!tensor.adapter || !tensor.name.ends_with(kAdapterDown)) continue;
    adapted.push_back(tensor.name.substr(0, tensor.name.rfind(kAdapterDown)));
  }
  return adapted;
}

std::string module_in_library(const FileNames& names, const std::string& own) {
  return without_ending(name_in_library(names, own + kOfWeight.data()));
}

bool is_of_one_expert(const std::string& matrix) { return !tensor_of_experts(matrix).empty(); }

bool is_down(const FileNames& names, const std::string& matrix) {
  return ends_with_module(matrix, names.expert_parts.back());
}

bool is_taken_for_experts(const FileNames& names, const std::string& matrix) {
  return names.peft_experts == PeftExperts::by_last_parts && !is_of_one_expert(matrix) &&
         std::ranges::any_of(names.expert_parts, [&](const std::string& part) {
           return ends_with_module(matrix, part);
         });
}

std::string tensor_in_peft(const FileNames& names, const std::string& matrix) {
  return without_ending(tensor_of_experts(matrix)) +
         (is_down(names, matrix) ? ".down_proj" : ".gate_up_proj");
}

std::string pattern_of_name(const std::string& name) {
  std::string pattern;
  for (const char c : name) pattern += c == '.' ? "\\." : std::string(1, c);
  return pattern;
}

std::string pattern_of_weight(const std::string& pattern) { return "(" + pattern + ")\\.weight"; }

}  // namespace strait::models
