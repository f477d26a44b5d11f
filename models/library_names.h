#pragma once

#include <functional>
#include <map>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "framework/name_pattern.h"
#include "models/families.h"
#include "models/lora.h"
#include "models/model_description.h"

namespace strait::models {

// Names of modules here, in transformers and in PEFT, for peft_settings.h.

using ModuleNames = std::vector<std::string>;

inline constexpr std::string_view kOfWeight = ".weight";
// Patterns for the tensors that PEFT has in place of the matrices of single experts.
inline constexpr const char* kGateAndUp = "experts.gate_up_proj";
inline constexpr const char* kDownOfAll = "experts.down_proj";

std::string without_ending(const std::string& name);  // its last part

// Modules of all tensors but adapters', and those with adapters, by their names here.
ModuleNames modules_of(const ModelDescription& model);
ModuleNames adapted_modules(const ModelDescription& model);

std::string module_in_library(const FileNames& names, const std::string& own);

bool is_of_one_expert(const std::string& matrix);
bool is_down(const FileNames& names, const std::string& matrix);  // of an expert
// Whether PEFT would take this matrix, which no expert has, for one of all experts.
bool is_taken_for_experts(const FileNames& names, const std::string& matrix);
// A single expert's matrix as PEFT names that of all: "model.layers.1.mlp.experts.down_proj".
std::string tensor_in_peft(const FileNames& names, const std::string& matrix);

std::string pattern_of_name(const std::string& name);
// PEFT knows a matrix by this name if target_parameters has it.
std::string pattern_of_weight(const std::string& pattern);

// The same values of these matrices, by patterns for `to(matrix)` in place of `from(matrix)`.
template <class Value>
std::map<std::string, Value> renamed_patterns(
    const std::map<std::string, Value>& values, const ModuleNames& matrices,
    const std::function<std::string(const std::string&)>& from,
    const std::function<std::string(const std::string&)>& to) {
  std::map<std::string, Value> renamed;
  for (const auto& [pattern, value] : values) {
    const std::regex ending = compile_ending(pattern);
    ModuleNames fitting;
    bool same = true;
    for (const std::string& matrix : matrices) {
      const bool fits = std::regex_match(from(matrix), ending);
      if (fits) fitting.push_back(to(matrix));
      same = same && fits == std::regex_match(to(matrix), ending);
    }
    // One that fits nothing is refused under its own name.
    if (same || fitting.empty()) renamed.emplace(pattern, value);
    if (same) continue;
    for (const std::string& name : fitting) renamed.emplace(pattern_of_name(name), value);
  }
  return renamed;
}

}  // namespace strait::models
