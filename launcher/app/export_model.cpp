#include "launcher/app/export_model.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "framework/store/atomic_file.h"
#include "framework/tensors/safetensors_writer.h"
#include "launcher/app/whole_model.h"
#include "launcher/base/errors.h"
#include "launcher/control/run_file_names.h"
#include "launcher/control/run_recorder.h"
#include "launcher/planner/checkpoint_weights.h"
#include "models/families.h"
#include "models/model_description.h"
#include "models/tensor_names.h"

namespace strait::app {
namespace {

namespace fs = std::filesystem;

std::vector<tensors::TensorSource> tensors_to_write(const RunCheckpoint& source,
                                                    const planner::CheckpointWeights& weights,
                                                    const ExportOptions& options) {
  std::vector<tensors::TensorSource> all;
  for (const models::TensorShape& tensor : models::describe(source.config).tensors()) {
    const planner::ModelWeights::Origin origin = weights.origin(tensor.name);
    const at::ScalarType type = options.type.value_or(origin.type);
    all.push_back({origin.name, type, tensor.shape, [&weights, type, name = tensor.name] {
                     return weights.read_merged(name).to(type);
                   }});
  }
  return all;
}

// What PEFT reads: adapters and saved modules, in float32 unless the user wants another type.
void write_adapter(const fs::path& directory, const RunCheckpoint& source,
                   const planner::CheckpointWeights& weights, const ExportOptions& options) {
  std::vector<tensors::TensorSource> all;
  for (const models::TensorShape& tensor : models::describe(source.config).trained_tensors()) {
    const at::ScalarType type = options.type.value_or(at::kFloat);
    all.push_back({models::adapter_file_name(source.config, tensor.name), type, tensor.shape,
                   [&weights, type, name = tensor.name] { return weights.read(name).to(type); }});
  }
  tensors::write_safetensors(directory / "adapter_model.safetensors", std::span(all));
  // Last: a directory without it is no adapter.
  store::replace_file(
      directory / "adapter_config.json",
      models::lora_text(models::lora_for_peft(source.config), source.run.plan.recipe.model.path,
                        models::family_of(source.config).input_first));
}

std::uint64_t bytes_of(const tensors::TensorSource& tensor) {
  std::uint64_t bytes = c10::elementSize(tensor.type);
  for (const std::int64_t extent : tensor.shape) bytes *= static_cast<std::uint64_t>(extent);
  return bytes;
}

// In the model's order, so that the layers of one part of it share a file.
std::vector<std::vector<tensors::TensorSource>> into_shards(
    const std::vector<tensors::TensorSource>& all, std::uint64_t limit) {
  std::vector<std::vector<tensors::TensorSource>> shards(1);
  std::uint64_t held = 0;
  for (const tensors::TensorSource& tensor : all) {
    if (held > 0 && held + bytes_of(tensor) > limit) {
      shards.emplace_back();
      held = 0;
    }
    shards.back().push_back(tensor);
    held += bytes_of(tensor);
  }
  return shards;
}

void write_weights(const fs::path& directory, const std::vector<tensors::TensorSource>& all,
                   std::uint64_t limit) {
  const auto shards = into_shards(all, limit);
  if (shards.size() == 1) {
    tensors::write_safetensors(directory / "model.safetensors", std::span(shards.front()));
    return;
  }
  nlohmann::ordered_json index;
  std::uint64_t total = 0;
  std::map<std::string, std::string> weight_map;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    tensors::write_safetensors(directory / name, std::span(shards[i]));
    for (const tensors::TensorSource& tensor : shards[i]) {
      weight_map[tensor.name] = name;
      total += bytes_of(tensor);
    }
  }
  index["metadata"]["total_size"] = total;
  index["weight_map"] = weight_map;
  // Last: a directory without it is not a model.
  store::replace_file(directory / "model.safetensors.index.json", index.dump(2) + "\n");
}

const char* name_of_type(at::ScalarType type) {
  if (type == at::kBFloat16) return "bfloat16";
  return type == at::kHalf ? "float16" : "float32";
}

// The source's text, unless the value type changes: readers take it from here, not from the files.
std::string config_text(const RunCheckpoint& source,
                        const std::vector<tensors::TensorSource>& tensors) {
  const std::string& text = source.run.plan.model_config;
  const std::string type = name_of_type(tensors.front().type);
  auto config = nlohmann::ordered_json::parse(text);
  bool changed = false;
  for (const char* field : {"dtype", "torch_dtype"}) {
    if (!config.contains(field) || config[field] == type) continue;
    config[field] = type;
    changed = true;
  }
  return changed ? config.dump(2) + "\n" : text;
}

// Everything beside the weights that loading or prompting the model may need.
bool is_companion(const fs::path& file) {
  constexpr std::array kWeights{".safetensors", ".bin",  ".pt",   ".pth", ".h5",
                                ".msgpack",     ".gguf", ".onnx", ".ckpt"};
  const std::string name = file.filename().string();
  const bool weights =
      std::ranges::any_of(kWeights, [&](const char* ending) { return file.extension() == ending; });
  return !weights && !name.starts_with('.') && name != "config.json" && name != "README.md" &&
         !name.ends_with(".index.json");
}

void copy_companions(const fs::path& from, const fs::path& to) {
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(from, none)) {
    const fs::path name = entry.path().filename();
    if (entry.is_regular_file() && is_companion(entry.path())) {
      fs::copy_file(entry.path(), to / name);
    } else if (entry.is_directory() && name == "additional_chat_templates") {
      fs::copy(entry.path(), to / name, fs::copy_options::recursive);
    }
  }
}

std::string value_text(const std::string& line, const char* key) {
  const auto fields = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  return fields.is_object() && fields.contains(key) ? fields[key].dump() : "unknown";
}

std::string model_card(const RunCheckpoint& source, const fs::path& run) {
  const plan::Plan& plan = source.run.plan;
  std::string card = fmt::format(
      "# {}\n\nFine-tuned with strait from `{}` ({} weights).\n\n"
      "| | |\n|---|---|\n| steps | {} of {} |\n| training data | {} rows of {} tokens, xxh3 {} |\n",
      plan.recipe.name, fs::path(plan.recipe.model.path).filename().string(),
      plan.recipe.model.weights == recipe::Weights::random ? "random" : "its", number(source.step),
      plan.steps, plan.train.rows, plan.recipe.data.row, plan.train.hash);
  const std::string trained = control::last_line_with(run / control::kMetricsFile, "\"loss\"");
  if (!trained.empty()) {
    card += fmt::format("| training loss of the last step | {} |\n", value_text(trained, "loss"));
  }
  const std::string evaluated =
      control::last_line_with(run / control::kEventsFile, "\"evaluated\"");
  if (!evaluated.empty()) {
    card += fmt::format("| evaluation loss at step {} | {} |\n", value_text(evaluated, "step"),
                        value_text(evaluated, "loss"));
  }
  std::ifstream recipe(run / control::kRecipeFile);
  const std::string text{std::istreambuf_iterator<char>(recipe), {}};
  return card + "\nThe recipe:\n\n```toml\n" + text + "```\n";
}

}  // namespace

std::string export_model(const fs::path& run, const fs::path& directory,
                         const ExportOptions& options) {
  if (fs::exists(directory) && !(fs::is_directory(directory) && fs::is_empty(directory))) {
    throw base::UserError(
        base::ExitCode::bad_input,
        fmt::format("{} exists already; export into a new directory", directory.string()));
  }
  const RunCheckpoint source = find_checkpoint(run);
  if (!source.warning.empty()) std::cerr << "strait: " << source.warning << '\n';
  const planner::CheckpointWeights weights(source.run.plan.recipe, source.config,
                                           source.checkpoint);
  const bool adapter = source.config.lora != nullptr && !options.merge;
  if (options.merge && source.config.lora == nullptr) {
    throw base::UserError(base::ExitCode::bad_input,
                          "the run trained the whole model: there are no adapters to merge; leave "
                          "--merge out");
  }
  const auto tensors = tensors_to_write(source, weights, options);
  store::make_directory(directory);
  store::replace_file(directory / "README.md", model_card(source, run));
  if (adapter) {
    write_adapter(directory, source, weights, options);
    return fmt::format(
        "the adapter of step {} is in {}; PEFT reads it, and so does "
        "model.adapter (--merge writes the whole model)\n",
        number(source.step), directory.string());
  }
  copy_companions(source.run.plan.recipe.model.path, directory);
  store::replace_file(directory / "config.json", config_text(source, tensors));
  write_weights(directory, tensors, options.shard_bytes);
  return fmt::format("{} tensors of step {} are in {}\n", tensors.size(), number(source.step),
                     directory.string());
}

}  // namespace strait::app
