#include "models/tensor_names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <set>
#include <string_view>
#include <utility>

#include "models/decoder_config.h"

namespace strait::models {
namespace {

constexpr std::size_t kMostShown = 6;  // per kind, in an error message
constexpr std::string_view kPeftPrefix = "base_model.model.";

using TensorTable = std::map<std::string, const TensorShape*>;  // by canonical name

std::string shape_text(const TensorShape& tensor) {
  return fmt::format("[{}]", fmt::join(tensor.shape, ", "));
}

constexpr std::string_view kWeight = ".weight";
constexpr std::string_view kBias = ".bias";
constexpr std::string_view kBlocks = "_blocks";

// A tensor of one expert: "….experts.7.up_proj.weight".
struct ExpertName {
  std::string block;  // "….experts."
  std::int64_t expert = 0;
  std::string part;  // "up_proj"
  bool bias = false;
};

std::optional<ExpertName> expert_name(const std::string& name) {
  constexpr std::string_view kExperts = ".experts.";
  const std::size_t begin = name.find(kExperts);
  const bool bias = name.ends_with(kBias);
  if (begin == std::string::npos || (!bias && !name.ends_with(kWeight))) return std::nullopt;
  const std::string rest = name.substr(begin + kExperts.size());
  const std::size_t point = rest.find('.');
  const std::string number = rest.substr(0, point);
  if (number.empty() || number.size() > 9 || !std::ranges::all_of(number, ::isdigit)) {
    return std::nullopt;
  }
  return ExpertName{name.substr(0, begin + kExperts.size()), std::stoll(number),
                    rest.substr(point + 1, rest.rfind('.') - point - 1), bias};
}

bool is_gate_or_up(const ExpertName& expert) {
  return expert.part == "gate_proj" || expert.part == "up_proj";
}

// The name of the tensor of all experts.
std::string name_of_all(const ExpertName& expert) {
  return expert.block + (is_gate_or_up(expert) ? "gate_up_proj" : expert.part) +
         (expert.bias ? "_bias" : "");
}

// The shape of the tensor of all experts that this tensor of one of them belongs to.
std::vector<std::int64_t> shape_of_all(const ExpertName& expert, const TensorShape& own,
                                       std::int64_t experts) {
  std::vector<std::int64_t> shape = own.shape;
  if (is_gate_or_up(expert)) shape.at(0) *= 2;
  shape.insert(shape.begin(), experts);
  return shape;
}

// MXFP4 files have the values of X, [experts, in, out], as X_blocks [experts, out, groups, 16] and
// X_scales [experts, out, groups]. Nullopt: these are not such blocks.
std::optional<TensorShape> unpacked(const TensorShape& tensor) {
  const std::vector<std::int64_t>& shape = tensor.shape;
  if (!tensor.name.ends_with(kBlocks) || shape.size() != 4) return std::nullopt;
  return TensorShape{tensor.name, {shape[0], 2 * shape[2] * shape[3], shape[1]}};
}

std::string scales_of(const std::string& blocks) {
  return blocks.substr(0, blocks.size() - kBlocks.size()) + "_scales";
}

// Puts the values of blocks and scales in their place.
void unpack_blocks(const std::vector<TensorShape>& in_file, TensorTable& found,
                   std::vector<TensorShape>& values) {
  values.reserve(in_file.size());
  for (const TensorShape& tensor : in_file) {
    const auto whole = unpacked(tensor);
    if (!whole) continue;
    const auto scales = found.find(scales_of(tensor.name));
    const std::vector<std::int64_t> expected(tensor.shape.begin(), tensor.shape.end() - 1);
    if (scales == found.end() || scales->second->shape != expected) continue;
    found.erase(scales);
    found.erase(tensor.name);
    found.emplace(tensor.name.substr(0, tensor.name.size() - kBlocks.size()),
                  &values.emplace_back(*whole));
  }
}

// Puts the tensors of single experts in the place of those of all, which keep their names.
void split_experts(const std::vector<TensorShape>& all, TensorTable& found,
                   std::vector<TensorShape>& parts) {
  parts.reserve(all.size());
  std::set<std::string> whole;
  std::map<std::string, std::int64_t> experts;
  for (const TensorShape& tensor : all) {
    const auto name = expert_name(tensor.name);
    if (name) experts[name->block] = std::max(experts[name->block], name->expert + 1);
  }
  for (const TensorShape& tensor : all) {
    const auto name = expert_name(tensor.name);
    if (!name || tensor.adapter || found.contains(tensor.name)) continue;
    const auto together = found.find(name_of_all(*name));
    if (together == found.end()) continue;
    TensorShape& part = parts.emplace_back(*together->second);
    // A shape that does not fit stays as it is, for the message.
    if (part.shape == shape_of_all(*name, tensor, experts[name->block])) part.shape = tensor.shape;
    found.emplace(tensor.name, &part);
    whole.insert(together->first);
  }
  for (const std::string& name : whole) found.erase(name);
}

// A tied projection may be stored in addition to the embedding (then the embedding counts), or
// instead of it.
void resolve_tied(const FileNames& names, TensorTable& found) {
  const auto head = found.find(names.head);
  if (head == found.end()) return;
  found.emplace(names.embedding, head->second);
  found.erase(head);
}

// The trained tensors, with the adapters of all experts as one, under names without PEFT's prefix.
std::vector<FileTensor> joined_adapters(const ModelConfig& config) {
  std::vector<FileTensor> all;
  std::map<std::string, std::size_t> joined;
  for (const TensorShape& tensor : describe(config).trained_tensors()) {
    const auto expert = expert_name(tensor.name);
    if (!expert || !tensor.adapter || config.lora->parameters.empty()) {
      all.push_back({tensor.name, tensor.shape, {tensor.name}});
      continue;
    }
    // A module with two such tensors has two layers of PEFT around it, that of down_proj outside.
    const bool inside = expert->part.starts_with("gate_up_proj") &&
                        adapter_of(*config.lora, expert->block + "0.down_proj");
    const std::string module = expert->block + (inside ? "base_layer." : "");
    const std::string name =
        module + expert->part.substr(expert->part.find('.') + 1) + kWeight.data();
    const auto [place, is_first] = joined.emplace(name, all.size());
    if (is_first) all.push_back({name, tensor.shape, {}});
    FileTensor& together = all[place->second];
    const std::size_t side = name.ends_with(kAdapterDown) ? 0 : 1;
    if (!is_first) together.shape[side] += tensor.shape[side];
    together.parts.push_back(tensor.name);
  }
  return all;
}

void add_problems(std::string& message, std::string_view kind,
                  const std::vector<std::string>& problems) {
  if (problems.empty()) return;
  const std::size_t shown = std::min(problems.size(), kMostShown);
  message += fmt::format(
      "; {} ({}): {}", kind, problems.size(),
      fmt::join(problems.begin(), problems.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
  if (shown < problems.size()) message += fmt::format(", … and {} more", problems.size() - shown);
}

// The names in the file of all expected tensors. Throws if the file does not have exactly those.
std::map<std::string, std::string> match(const std::vector<TensorShape>& all, TensorTable found,
                                         std::vector<std::string> surplus,
                                         const std::string& title) {
  std::map<std::string, std::string> names;
  std::vector<std::string> missing;
  std::vector<std::string> misshapen;
  for (const TensorShape& expected : all) {
    const auto tensor = found.find(expected.name);
    if (tensor == found.end()) {
      missing.push_back(fmt::format("{} {}", expected.name, shape_text(expected)));
      continue;
    }
    if (tensor->second->shape != expected.shape) {
      misshapen.push_back(fmt::format("{} is {} and should be {}", tensor->second->name,
                                      shape_text(*tensor->second), shape_text(expected)));
    }
    names.emplace(expected.name, tensor->second->name);
    found.erase(tensor);
  }
  for (const auto& [name, tensor] : found) surplus.push_back(tensor->name);
  if (missing.empty() && surplus.empty() && misshapen.empty()) return names;

  std::string message = title;
  add_problems(message, "missing", missing);
  add_problems(message, "surplus", surplus);
  add_problems(message, "misshapen", misshapen);
  throw TensorMismatch(message + "; check that config.json and weights belong together");
}

}  // namespace

FileNames file_names(const ModelConfig& config) {
  FileNames names = family_of(config).names;
  if (const auto* decoder = std::any_cast<DecoderConfig>(&config.values)) {
    for (const std::int64_t block : decoder->prediction_blocks) {
      names.carried.push_back(fmt::format("{}{}.", decoder->names.blocks, block));
    }
  }
  return names;
}

std::map<std::string, std::string> match_tensors(const ModelConfig& config,
                                                 const std::vector<TensorShape>& in_file,
                                                 const std::string& where) {
  const FileNames names = file_names(config);
  const ModelDescription model = describe(config);
  TensorTable found;
  std::vector<std::string> surplus;
  for (const TensorShape& tensor : in_file) {
    const std::optional<std::string> name = canonical_name(names, tensor.name);
    if (name && !found.emplace(*name, &tensor).second) surplus.push_back(tensor.name);
  }
  if (model.tied) resolve_tied(names, found);

  const std::vector<TensorShape> all = model.tensors();
  std::vector<TensorShape> values;
  if (names.reads_mxfp4) unpack_blocks(in_file, found, values);
  std::vector<TensorShape> parts;
  split_experts(all, found, parts);
  return match(all, std::move(found), std::move(surplus),
               fmt::format("{}: not the weights of this {} model", where, model.family));
}

std::optional<FileRows> rows_in_file(const std::string& name, const TensorShape& tensor) {
  const std::vector<std::int64_t>& in_file = tensor.shape;
  const auto expert = expert_name(name);
  if (expert && unpacked(tensor)) {
    FileRows rows;
    rows.count = in_file[1] * in_file[2];
    rows.first = expert->expert * rows.count;
    rows.scales = scales_of(tensor.name);
    rows.scale_count = in_file[1];
    rows.first_scale = expert->expert * in_file[1];
    return rows;
  }
  if (!expert || in_file.size() != (expert->bias ? 2 : 3)) return std::nullopt;
  if (expert->bias) return FileRows{.first = expert->expert, .count = 1, .vector = true};
  const bool half = is_gate_or_up(*expert);
  const std::int64_t count = half ? in_file[1] / 2 : in_file[1];
  const std::int64_t first = expert->expert * in_file[1] + (expert->part == "up_proj" ? count : 0);
  return FileRows{.first = first, .count = count};
}

std::vector<FileTensor> tensors_to_export(const ModelConfig& config) {
  std::vector<FileTensor> all;
  std::map<std::string, std::size_t> joined;  // the place of a tensor of all experts
  for (const TensorShape& tensor : describe(config).tensors()) {
    const auto expert = expert_name(tensor.name);
    if (!expert || !family_of(config).names.joins_experts) {
      all.push_back({"", tensor.shape, {tensor.name}});
      continue;
    }
    const std::string name = name_of_all(*expert);
    const auto [place, is_first] = joined.emplace(name, all.size());
    if (is_first) all.push_back({name, shape_of_all(*expert, tensor, 0), {}});
    FileTensor& together = all[place->second];
    together.parts.push_back(tensor.name);
    together.shape[0] = expert->expert + 1;
  }
  return all;
}

std::optional<StoredTwice> tied_stored_twice(const ModelConfig& config,
                                             const std::vector<TensorShape>& in_file) {
  if (!describe(config).tied) return std::nullopt;
  const FileNames& names = family_of(config).names;
  StoredTwice twice;
  for (const TensorShape& tensor : in_file) {
    const std::optional<std::string> name = canonical_name(names, tensor.name);
    if (name == names.embedding) twice.table = tensor.name;
    if (name == names.head) twice.projection = tensor.name;
  }
  if (twice.table.empty() || twice.projection.empty()) return std::nullopt;
  return twice;
}

std::vector<FileTensor> adapter_files(const ModelConfig& config) {
  std::vector<FileTensor> all = joined_adapters(config);
  for (FileTensor& tensor : all) {
    tensor.name = std::string(kPeftPrefix) + name_in_library(family_of(config).names, tensor.name);
  }
  return all;
}

std::map<std::string, AdapterTensor> match_adapter_tensors(const ModelConfig& config,
                                                           const std::vector<TensorShape>& in_file,
                                                           const std::string& where) {
  const FileNames& names = family_of(config).names;
  TensorTable found;
  std::vector<std::string> surplus;
  for (const TensorShape& tensor : in_file) {
    const bool known =
        tensor.name.starts_with(kPeftPrefix) &&
        found.emplace(own_name(names, tensor.name.substr(kPeftPrefix.size())), &tensor).second;
    if (!known) surplus.push_back(tensor.name);
  }
  const std::vector<FileTensor> files = joined_adapters(config);
  std::vector<TensorShape> all;
  all.reserve(files.size());
  for (const FileTensor& tensor : files) all.push_back({tensor.name, tensor.shape});
  const auto matched =
      match(all, std::move(found), std::move(surplus),
            fmt::format("{}: not adapters of this {} model as adapter_config.json has them", where,
                        config.family));
  std::map<std::string, AdapterTensor> places;
  for (const FileTensor& tensor : files) {
    const std::int64_t parts = std::ssize(tensor.parts);
    for (std::int64_t part = 0; part < parts; ++part) {
      places.emplace(tensor.parts[static_cast<std::size_t>(part)],
                     AdapterTensor{matched.at(tensor.name), part, parts});
    }
  }
  return places;
}

}  // namespace strait::models
