#include <ATen/ATen.h>
#include <ATen/core/ScalarType.h>
#include <ATen/core/Tensor.h>

#include <iostream>

#include "framework/store/atomic_file.h"
#include "framework/store/step_folders.h"
#include "framework/store/store_error.h"
#include "framework/tensors/safetensors_writer.h"
#include "framework/tensors/weight_files.h"
#include "launcher/cli/remove_unless_complete.h"
#include "launcher/compute/ask_model.h"
#include "launcher/compute/generation.h"
#include "launcher/compute/model_card.h"
#include "launcher/compute/verbs.h"
#include "launcher/planner/model_weights.h"
#include "launcher/planner/planned_model.h"
#include "models/families.h"
#include "models/peft_settings.h"
#include "models/tensor_names.h"

namespace strait::compute {
namespace {

struct ExportOptions {
  std::optional<at::ScalarType> type;         // absent: each tensor's own in the source
  bool merge = false;                         // of adapters: write the model with them added
  std::uint64_t shard_bytes = 5'000'000'000;  // a file holds at most this, or one tensor
  std::string checkpoint = cli::kNewest;
};

namespace fs = std::filesystem;

std::vector<tensors::TensorSource> tensors_to_write(const RunCheckpoint& source,
                                                    const planner::CheckpointWeights& weights,
                                                    const ExportOptions& options) {
  const models::FileNames names = models::file_names(source.config);
  std::vector<tensors::TensorSource> all;
  for (const models::FileTensor& tensor : models::tensors_to_export(source.config)) {
    const planner::ModelWeights::Origin origin = weights.origin(tensor.parts.front());
    std::string name = tensor.name.empty() ? origin.name : tensor.name;
    if (models::canonical_name(names, origin.stored) == name) name = origin.stored;
    const at::ScalarType type = options.type.value_or(origin.type);
    all.push_back(
        {name, type, tensor.shape, [&weights, type, parts = tensor.parts, shape = tensor.shape] {
           std::vector<at::Tensor> values;
           values.reserve(parts.size());
           for (const auto& part : parts) values.push_back(weights.read_merged(part).to(type));
           return (parts.size() == 1 ? values.front() : at::stack(values)).reshape(shape);
         }});
  }
  const recipe::Recipe::Model& model = source.run.plan.recipe.model;
  if (names.carried.empty() || model.weights != recipe::Weights::load) return all;
  // Of a larger model that this one is a part of.
  const auto files = std::make_shared<const tensors::WeightFiles>(model.path);
  for (const auto& [info, file] : files->tensors()) {
    if (!models::is_carried(names, info.name)) continue;
    const auto type = options.type.value_or(tensors::scalar_type(info.dtype));
    all.push_back({info.name, type, info.shape,
                   [files, type, name = info.name] { return files->read(name).to(type); }});
  }
  return all;
}

// What the adapters were trained over. PEFT finds no model of this name where that is not the
// model as published, and so does not put them over other weights without a word.
std::string base_of(const plan::Plan& plan) {
  const recipe::Recipe::Model& model = plan.recipe.model;
  if (model.weights == recipe::Weights::load) return base_name(plan);
  return fmt::format("{}, {}", base_name(plan), weights_text(model));
}

// So that Ctrl-C ends the export before the next tensor.
void make_stoppable(std::vector<tensors::TensorSource>& all,
                    const cli::RemoveUnlessComplete& written) {
  for (tensors::TensorSource& tensor : all) {
    tensor.read = [&written, read = std::move(tensor.read)] {
      written.check();
      return read();
    };
  }
}

// What PEFT reads: adapters and saved modules, in float32 unless the user wants another type.
void write_adapter(const fs::path& directory, const RunCheckpoint& source,
                   const planner::CheckpointWeights& weights, const ExportOptions& options,
                   const cli::RemoveUnlessComplete& written) {
  std::vector<tensors::TensorSource> all;
  for (const models::FileTensor& tensor : models::adapter_files(source.config)) {
    const at::ScalarType type = options.type.value_or(at::kFloat);
    all.push_back({tensor.name, type, tensor.shape,
                   [&weights, type, parts = tensor.parts,
                    down = tensor.name.ends_with(models::kAdapterDown)] {
                     std::vector<at::Tensor> values;
                     values.reserve(parts.size());
                     for (const auto& part : parts) values.push_back(weights.read(part).to(type));
                     if (values.size() == 1) return values.front();
                     return down ? at::cat(values) : at::stack(values, 2).flatten(1);
                   }});
  }
  make_stoppable(all, written);
  tensors::write_safetensors(directory / "adapter_model.safetensors", std::span(all));
  // Last: a directory without it is no adapter.
  store::replace_file(
      directory / "adapter_config.json",
      models::lora_text(models::lora_for_peft(source.config), base_of(source.run.plan),
                        models::family_of(source.config).input_first));
}

// What the user should know of the model that adapters are put over. Empty: PEFT finds it.
std::string note_on_base(const plan::Plan& plan) {
  const recipe::Recipe::Model& model = plan.recipe.model;
  if (model.weights != recipe::Weights::load) {
    return fmt::format(
        "its base is {}: export that as well, and name it to PEFT, or take --merge\n",
        base_of(plan));
  }
  if (planner::model_hub_name(model.path, plan.model_config)) return "";
  return fmt::format(
      "its base is {}, for which no name on the Hugging Face hub is known: load it "
      "from there, and give it to PEFT\n",
      model.path);
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

// The source's text, unless it has a path, or the value type changes: readers take that from here,
// not from the files.
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
  // Four bits leave as the values that they stand for.
  if (config.erase("quantization_config") > 0) changed = true;
  // Where somebody once had the model is of no use to others.
  constexpr const char* kOrigin = "_name_or_path";
  if (config.contains(kOrigin) && config[kOrigin].is_string() &&
      fs::path(config[kOrigin].get<std::string>()).is_absolute()) {
    config.erase(kOrigin);
    changed = true;
  }
  return changed ? config.dump(2) + "\n" : text;
}

// What says how text becomes tokens, and messages text.
bool is_of_tokenizer(const fs::path& file) {
  constexpr std::array kNames{"vocab.json",  "vocab.txt",         "merges.txt",
                              "tekken.json", "added_tokens.json", "special_tokens_map.json"};
  constexpr std::array kStarts{"tokenizer", "tokenization_", "chat_template",
                               "additional_chat_templates"};
  constexpr std::array kEndings{".model", ".tiktoken"};  // of sentencepiece, and of others
  const std::string name = file.filename().string();
  return std::ranges::find(kNames, name) != kNames.end() ||
         std::ranges::any_of(kStarts, [&](const char* one) { return name.starts_with(one); }) ||
         std::ranges::any_of(kEndings, [&](const char* one) { return name.ends_with(one); });
}

// What loading or prompting the model may need in addition to the weights, and its licence. A list,
// since a folder may also hold the old weights in the formats of other libraries.
bool is_side_file(const fs::path& file) {
  constexpr std::array kEndings{".json", ".jinja", ".py", ".md", ".txt"};
  constexpr std::array kStarts{"LICENSE", "LICENCE", "NOTICE"};
  const std::string name = file.filename().string();
  if (name.starts_with('.') || name == "config.json" || name == "README.md" ||
      name.ends_with(".index.json")) {
    return false;
  }
  return is_of_tokenizer(file) ||
         std::ranges::any_of(kEndings, [&](const char* one) { return name.ends_with(one); }) ||
         std::ranges::any_of(kStarts, [&](const char* one) { return name.starts_with(one); });
}

enum class SideFiles { all, of_tokenizer, of_model };

void copy_side_files(const fs::path& from, const fs::path& to, SideFiles chosen) {
  for (const fs::path& entry : store::entries_of(from)) {
    const fs::path name = entry.filename();
    if (chosen != SideFiles::all && is_of_tokenizer(entry) != (chosen == SideFiles::of_tokenizer)) {
      continue;
    }
    if (fs::is_regular_file(entry) && is_side_file(entry)) {
      store::copy_file(entry, to / name);
    } else if (fs::is_directory(entry) && name == "additional_chat_templates") {
      store::make_directory(to / name);
      for (const fs::path& one : store::entries_of(entry)) {
        if (fs::is_regular_file(one)) store::copy_file(one, to / name / one.filename());
      }
    }
  }
}

// The tokenizer that the run's data were made with, as generate takes it. Returns what the user
// should know of it; empty: nothing.
std::string copy_tokenizer_and_side_files(const plan::RunFile& run, const fs::path& to) {
  const recipe::Recipe& recipe = run.plan.recipe;
  const std::string& chosen = recipe.data.tokenizer;
  const bool bytes = chosen == "bytes" || (chosen.empty() && data_tokenizer(run) == "bytes");
  std::error_code none;
  if (!bytes && (chosen.empty() || fs::equivalent(chosen, recipe.model.path, none))) {
    copy_side_files(recipe.model.path, to, SideFiles::all);
    return "";
  }
  copy_side_files(recipe.model.path, to, SideFiles::of_model);
  if (bytes) {
    return "the run's tokens are bytes, for which transformers has no tokenizer: the export has "
           "none\n";
  }
  std::string tokenizer;
  try {
    tokenizer = tokenizer_of_run(run, std::nullopt);
  } catch (const store::StoreError& error) {
    return fmt::format("the export has no tokenizer, as that of the run cannot be used: {}\n",
                       error.what());
  }
  copy_side_files(tokenizer, to, SideFiles::of_tokenizer);
  return "";
}

// Writes a run's checkpoint as a Hugging Face directory: weights under the names and in the
// value types of the source's files, config.json, the source's tokenizer, template and generation
// files, and a README.md that says how the model was made. One tensor is in memory at a time. Of a
// run that trained adapters: a PEFT directory, unless they are to be merged.
// Returns a line for the user. UserError where the directory exists already or no checkpoint does.
std::string export_model(const fs::path& run, const fs::path& directory,
                         const ExportOptions& options) {
  cli::check_new_or_empty(directory, "export into a new directory");
  const RunCheckpoint source = find_checkpoint(run, options.checkpoint);
  cli::warn(source.warning);
  const planner::CheckpointWeights weights(source.run.plan.recipe, source.config,
                                           source.checkpoint);
  const bool adapter = source.config.lora != nullptr && !options.merge;
  if (options.merge && source.config.lora == nullptr) {
    throw base::UserError(base::ExitCode::bad_input,
                          "the run trained the whole model: there are no adapters to merge; leave "
                          "--merge out");
  }
  cli::RemoveUnlessComplete written(directory);
  store::make_directory(directory);
  store::replace_file(directory / "README.md", model_card(source, run, adapter));
  if (adapter) {
    write_adapter(directory, source, weights, options, written);
    written.complete();
    if (const std::string unread = models::unread_by_peft(source.config); !unread.empty()) {
      return fmt::format(
          "the adapter of step {} is in {}; model.adapter reads it, but PEFT over transformers 5 "
          "{}: export with --merge, which writes the whole model\n",
          number(source.step), directory.string(), unread);
    }
    return fmt::format(
        "the adapter of step {} is in {}; PEFT reads it, and so does "
        "model.adapter (--merge writes the whole model)\n{}",
        number(source.step), directory.string(), note_on_base(source.run.plan));
  }
  auto tensors = tensors_to_write(source, weights, options);
  make_stoppable(tensors, written);
  std::string note = copy_tokenizer_and_side_files(source.run, directory);
  if (const auto base = source.run.plan.recipe.model.quantization; base != recipe::Quantization()) {
    note +=
        fmt::format("its base is rounded to {}, as in training; PEFT can merge over the files\n",
                    recipe::name_of(base));
  }
  if (const std::string named = named_template(source.run.plan.recipe); !named.empty()) {
    store::replace_file(directory / "chat_template.jinja", named);
  }
  store::replace_file(directory / "config.json", config_text(source, tensors));
  write_weights(directory, tensors, options.shard_bytes);
  written.complete();
  return fmt::format("{} tensors of step {} are in {}\n{}", tensors.size(), number(source.step),
                     directory.string(), note);
}

}  // namespace

base::ExitCode perform(const cli::ExportFlags& flags) {
  ExportOptions options{{}, flags.merge, {}, flags.checkpoint};
  if (flags.type == "float32") options.type = at::kFloat;
  if (flags.type == "bfloat16") options.type = at::kBFloat16;
  if (flags.type == "float16") options.type = at::kHalf;
  options.shard_bytes = static_cast<std::uint64_t>(flags.shard_gigabytes * 1e9);
  std::cout << export_model(flags.run, flags.directory, options);
  return base::ExitCode::done;
}

}  // namespace strait::compute
