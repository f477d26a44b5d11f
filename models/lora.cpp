#include "models/lora.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <nlohmann/json.hpp>
#include <regex>
#include <stdexcept>

#include "framework/name_pattern.h"
#include "models/config_reader.h"

namespace strait::models {
namespace {

constexpr const char* kAllLinear = "all-linear";
constexpr std::int64_t kLargestRank = 1 << 16;
constexpr double kLargestAlpha = 1e9;

// The number of the block in a name: its first part that is a number. Another may be an expert's.
std::optional<std::int64_t> block_of(const std::string& name) {
  std::size_t begin = 0;
  while (begin < name.size()) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    const std::string part = name.substr(begin, end - begin);
    const bool number = !part.empty() && part.size() < 10 &&
                        std::ranges::all_of(part, [](unsigned char c) { return std::isdigit(c); });
    if (number) return std::stoll(part);
    begin = end + 1;
  }
  return std::nullopt;
}

// The value of the first pattern that matches the end of the name.
template <class Value>
Value by_pattern(const std::map<std::string, Value>& values, const std::string& name,
                 Value otherwise) {
  for (const auto& [pattern, value] : values) {
    if (std::regex_match(name, compile_ending(pattern))) return value;
  }
  return otherwise;
}

void check_pattern(const ConfigReader& reader, const std::string& field,
                   const std::string& pattern) {
  if (is_name_pattern(pattern)) return;
  reader.refuse(field, fmt::format("regular expressions of at most {} characters, without back "
                                   "references and large numbers of repetitions",
                                   kLongestPattern));
}

void refuse_unless_absent(const ConfigReader& reader, const std::string& field) {
  if (!reader.is_empty(field)) reader.refuse(field, "absent: it is not supported");
}

void read_targets(const ConfigReader& reader, Lora& lora) {
  lora.parameters = reader.strings("target_parameters").value_or(std::vector<std::string>{});
  if (!lora.parameters.empty() && reader.is_empty("target_modules")) {
    lora.pattern = kNoMatrix;
    return;
  }
  if (reader.is_list("target_modules")) {
    lora.targets = *reader.strings("target_modules");
    if (lora.targets.empty()) reader.refuse("target_modules", "at least one name");
    return;
  }
  lora.pattern = reader.string("target_modules", "");
  if (lora.pattern.empty()) reader.refuse("target_modules", "a list of names, or a pattern");
  if (lora.pattern == kAllLinear) {
    lora.pattern.clear();
  } else {
    check_pattern(reader, "target_modules", lora.pattern);
  }
}

// Initial values do not matter after training. But some methods subtract them from the model's
// matrices, and their adapters then apply to the difference.
void check_initialization(const ConfigReader& reader) {
  const std::string field = "init_lora_weights";
  if (!reader.is_string(field)) {
    reader.boolean(field, true);
    return;
  }
  const std::string method = reader.string(field, "");
  constexpr std::array kKeepTheModel{"gaussian", "eva", "orthogonal", "mica"};
  if (std::ranges::find(kKeepTheModel, method) == kKeepTheModel.end()) {
    reader.refuse(field,
                  "an adapter over the model as it is: convert it with PEFT "
                  "(path_initial_model_for_weight_conversion)");
  }
}

// PEFT takes the first pattern of its file; here patterns are sorted.
template <class Value>
void refuse_two_values(const char* setting, const std::map<std::string, Value>& values,
                       const std::vector<std::string>& matrices) {
  std::map<std::string, Value> found;
  for (const auto& [pattern, value] : values) {
    const std::regex ending = compile_ending(pattern);
    for (const std::string& matrix : matrices) {
      if (!std::regex_match(matrix, ending)) continue;
      const auto [first, added] = found.emplace(matrix, value);
      if (added || first->second == value) continue;
      throw ConfigError(
          fmt::format("LoRA's {} gives {} two values, {} and {}; let its patterns not overlap",
                      setting, matrix, first->second, value));
    }
  }
}

std::vector<std::int64_t> read_blocks(const ConfigReader& reader) {
  const std::string field = "layers_to_transform";
  std::vector<std::int64_t> blocks;
  if (!reader.is_list(field)) {
    if (reader.has(field)) blocks.push_back(reader.integer(field, 0, 0, kLargestRank));
    return blocks;
  }
  const std::vector<double> numbers = *reader.numbers(field);
  for (const double block : numbers) {
    if (block < 0 || block > kLargestRank || block != std::floor(block)) {
      reader.refuse(field, "numbers of blocks");
    }
    blocks.push_back(static_cast<std::int64_t>(block));
  }
  return blocks;
}

// Blocks are found by the first number in a name, so the name of their list tells nothing new.
void check_blocks_name(const ConfigReader& reader) {
  const std::string field = "layers_pattern";
  if (reader.is_empty(field)) return;
  constexpr std::array kKnown{"layers", "h"};  // of llama and others, and of GPT-2
  const std::vector<std::string> lists =
      reader.is_list(field) ? *reader.strings(field) : std::vector{reader.string(field, "")};
  const bool known = std::ranges::all_of(lists, [&](const std::string& list) {
    return std::ranges::find(kKnown, list) != kKnown.end();
  });
  if (!known) reader.refuse(field, "\"layers\" or \"h\", what blocks are called in");
}

}  // namespace

bool ends_with_module(const std::string& name, const std::string& part) {
  if (!name.ends_with(part)) return false;
  return name.size() == part.size() || name[name.size() - part.size() - 1] == '.';
}

std::string tensor_of_experts(const std::string& matrix) {
  constexpr std::string_view kExperts = ".experts.";
  const std::size_t begin = matrix.find(kExperts);
  if (begin == std::string::npos) return "";
  const std::size_t number = begin + kExperts.size();
  const std::size_t end = matrix.find_first_not_of("0123456789", number);
  if (end == std::string::npos || end == number || matrix[end] != '.') return "";
  return matrix.substr(0, number) + matrix.substr(end + 1);
}

std::optional<AdapterShape> adapter_of(const Lora& lora, const std::string& matrix) {
  if (is_saved_module(lora, matrix)) return std::nullopt;
  const std::string joined = lora.parameters.empty() ? "" : tensor_of_experts(matrix);
  // PEFT knows experts whose matrices are one tensor by that tensor's name (target_parameters).
  const std::string& name = joined.empty() ? matrix : joined;
  const std::vector<std::string>& targets = joined.empty() ? lora.targets : lora.parameters;
  if (!targets.empty()) {
    const auto named = [&](const std::string& target) { return ends_with_module(name, target); };
    if (std::ranges::none_of(targets, named)) return std::nullopt;
  } else if (!lora.pattern.empty() && !std::regex_match(matrix, compile_pattern(lora.pattern))) {
    return std::nullopt;
  }
  if (!lora.blocks.empty()) {
    const std::optional<std::int64_t> block = block_of(matrix);
    if (!block || std::ranges::find(lora.blocks, *block) == lora.blocks.end()) return std::nullopt;
  }
  AdapterShape shape;
  shape.rank = by_pattern(lora.ranks, name, lora.rank);
  const double alpha = by_pattern(lora.alphas, name, lora.alpha);
  const auto rank = static_cast<double>(shape.rank);
  shape.scale = alpha / (lora.rank_stabilized ? std::sqrt(rank) : rank);
  shape.dropout = lora.dropout;
  shape.decomposed = lora.decomposed;
  return shape;
}

void check_patterns(const Lora& lora, const std::vector<std::string>& matrices) {
  refuse_two_values("rank_pattern", lora.ranks, matrices);
  refuse_two_values("alpha_pattern", lora.alphas, matrices);
}

std::vector<std::string> unused_patterns(const Lora& lora,
                                         const std::vector<std::string>& matrices) {
  std::vector<std::string> unused;
  const auto add = [&](const char* setting, const std::string& pattern) {
    const std::regex ending = compile_ending(pattern);
    const auto fits = [&](const std::string& matrix) { return std::regex_match(matrix, ending); };
    if (std::ranges::none_of(matrices, fits)) {
      unused.push_back(fmt::format("{} \"{}\"", setting, pattern));
    }
  };
  for (const auto& [pattern, rank] : lora.ranks) add("rank_pattern", pattern);
  for (const auto& [pattern, alpha] : lora.alphas) add("alpha_pattern", pattern);
  return unused;
}

bool is_saved_module(const Lora& lora, const std::string& module) {
  return std::ranges::any_of(
      lora.saved, [&](const std::string& saved) { return ends_with_module(module, saved); });
}

bool keeps_input(const Lora* lora, const std::string& prefix,
                 std::initializer_list<std::string> names) {
  return std::ranges::any_of(names, [&](const std::string& name) {
    if (name.empty()) return false;
    // A trained matrix needs its input for the gradient. A frozen one needs it for its adapter,
    // unless dropout makes a changed copy of it anyway.
    if (lora == nullptr || is_saved_module(*lora, prefix + name)) return true;
    return lora->dropout == 0 && adapter_of(*lora, prefix + name).has_value();
  });
}

Lora parse_lora(std::string_view text, const std::string& file) {
  const ConfigReader reader(text, file);
  if (reader.string("peft_type", "") != "LORA") reader.refuse("peft_type", "\"LORA\"");
  if (reader.string("bias", "none") != "none") reader.refuse("bias", "\"none\"");
  if (reader.boolean("lora_bias", false)) reader.refuse("lora_bias", "false");
  // Each of these changes what the adapter computes, so a file that uses one cannot be taken as
  // LoRA.
  for (const char* field :
       {"exclude_modules", "layer_replication", "trainable_token_indices",
        "alora_invocation_tokens", "use_qalora", "arrow_config", "kasa_config", "use_bdlora"}) {
    refuse_unless_absent(reader, field);
  }
  check_initialization(reader);
  Lora lora;
  lora.rank = reader.integer("r", lora.rank, 1, kLargestRank);
  // PEFT's default if a file has no lora_alpha.
  lora.alpha = reader.number("lora_alpha", 8, 0, kLargestAlpha);
  lora.dropout = reader.number("lora_dropout", 0, 0, std::nextafter(1.0, 0.0));
  lora.rank_stabilized = reader.boolean("use_rslora", false);
  lora.decomposed = reader.boolean("use_dora", false);
  read_targets(reader, lora);
  lora.blocks = read_blocks(reader);
  check_blocks_name(reader);
  if (!lora.blocks.empty() && !lora.parameters.empty()) {
    reader.refuse("layers_to_transform",
                  "absent: PEFT does not apply it to target_parameters, whose names may have a "
                  "block's number (\"7.mlp.experts.down_proj\")");
  }
  lora.saved = reader.strings("modules_to_save").value_or(std::vector<std::string>{});
  const ConfigReader ranks = reader.object("rank_pattern");
  for (const std::string& pattern : ranks.names()) {
    check_pattern(reader, "rank_pattern", pattern);
    lora.ranks.emplace(pattern, ranks.integer(pattern, 0, 1, kLargestRank));
  }
  const ConfigReader alphas = reader.object("alpha_pattern");
  for (const std::string& pattern : alphas.names()) {
    check_pattern(reader, "alpha_pattern", pattern);
    lora.alphas.emplace(pattern, alphas.number(pattern, 0, 0, kLargestAlpha));
  }
  return lora;
}

std::string lora_text(const Lora& lora, const std::string& base, bool input_first) {
  using nlohmann::json;
  if (!lora.blocks.empty() && lora.targets.empty()) {
    throw std::logic_error("an adapter_config.json with a pattern and numbers of blocks");
  }
  json fields = {
      {"peft_type", "LORA"},
      {"task_type", "CAUSAL_LM"},
      {"base_model_name_or_path", base},
      {"inference_mode", true},
      {"r", lora.rank},
      {"lora_alpha", lora.alpha},
      {"lora_dropout", lora.dropout},
      {"use_rslora", lora.rank_stabilized},
      {"use_dora", lora.decomposed},
      {"bias", "none"},
      {"fan_in_fan_out", input_first},
      {"rank_pattern", lora.ranks},
      {"alpha_pattern", lora.alphas},
      {"layers_to_transform", lora.blocks.empty() ? json() : json(lora.blocks)},
      {"target_parameters", lora.parameters.empty() ? json() : json(lora.parameters)},
      {"modules_to_save", lora.saved.empty() ? json() : json(lora.saved)},
  };
  if (!lora.targets.empty()) {
    fields["target_modules"] = lora.targets;
  } else if (lora.pattern == kNoMatrix) {
    fields["target_modules"] = json::array();
  } else {
    fields["target_modules"] = lora.pattern.empty() ? kAllLinear : lora.pattern;
  }
  return fields.dump(2) + "\n";
}

}  // namespace strait::models
