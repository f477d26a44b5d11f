#include "launcher/planner/model_weights.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <nlohmann/json.hpp>

#include "framework/fields/bounded_json.h"
#include "framework/store/step_folders.h"
#include "framework/store/store_error.h"
#include "kernels/mxfp4.h"
#include "kernels/quantized_matrix.h"
#include "launcher/base/errors.h"
#include "launcher/base/own_program.h"
#include "launcher/planner/planned_model.h"
#include "models/families.h"
#include "models/initialize.h"
#include "stages/stage_state.h"

namespace strait::planner {
namespace {

// The values with which training computes.
at::Tensor dequantized(const at::Tensor& values, kernels::MatrixFormat format,
                       const std::string& name) {
  models::Parameter matrix{name, values};
  matrix.quantized =
      kernels::make_quantized_matrix({format, values.size(0), values.size(1)}, at::kCPU);
  models::assign(matrix, values);
  at::Tensor read = at::empty_like(values);
  kernels::dequantize_matrix(*matrix.quantized, read);
  return read;
}

// The files of a checkpoint that hold hashes of frozen tensors. They are not part of its weights,
// so they may be missing on this host or damaged; then nothing is compared.
std::vector<std::unique_ptr<tensors::SafetensorsReader>> files_with_hashes(
    const tensors::CheckpointReader& checkpoint) {
  std::vector<std::unique_ptr<tensors::SafetensorsReader>> found;
  for (const store::ShardFile& file : store::files_of(checkpoint.manifest(), store::Part::all)) {
    const std::filesystem::path path = checkpoint.path() / file.name;
    if (!file.name.ends_with(".safetensors") || !store::has_size(path, file.size)) continue;
    try {
      auto reader = std::make_unique<tensors::SafetensorsReader>(path);
      const bool any = std::ranges::any_of(reader->tensors(), [](const store::TensorInfo& tensor) {
        return tensor.name.starts_with(stages::frozen_hash_name(""));
      });
      if (any) found.push_back(std::move(reader));
    } catch (const store::StoreError&) {
      continue;
    }
  }
  return found;
}

namespace fs = std::filesystem;

// A finite sum has only finite terms. A sum that is not finite may only have overflowed, so then
// every value is checked.
at::Tensor checked(at::Tensor values, const std::string& name, const fs::path& file) {
  if (!values.is_floating_point() || std::isfinite(values.sum(at::kDouble).item<double>())) {
    return values;
  }
  if (at::isfinite(values).all().item<bool>()) return values;
  throw base::UserError(
      base::ExitCode::bad_input,
      "{}: tensor {} has values that are not finite; get the file again, or train from another one",
      file.string(), name);
}

template <class Infos>
std::vector<models::TensorShape> shapes_of(const Infos& infos) {
  std::vector<models::TensorShape> shapes;
  shapes.reserve(infos.size());
  for (const auto& info : infos) shapes.push_back({info.name, info.shape});
  return shapes;
}

std::vector<models::TensorShape> shapes_of(const tensors::WeightFiles& files) {
  std::vector<models::TensorShape> shapes;
  for (const auto& entry : files.tensors()) shapes.push_back({entry.info.name, entry.info.shape});
  return shapes;
}

// Only adapters are read from such a run. Its frozen weights are in its model's files, or in a part
// of the checkpoint that is not read here.
bool holds_adapters(const tensors::CheckpointReader& checkpoint) {
  return std::ranges::any_of(checkpoint.names(), [](const std::string& name) {
    return name.ends_with(models::kAdapterDown);
  });
}

// The command that exports the run of a checkpoint, without the folder to write to.
std::string export_command(const fs::path& checkpoint) {
  const fs::path run = checkpoint.parent_path().filename() == store::kCheckpointsFolder
                           ? checkpoint.parent_path().parent_path()
                           : checkpoint;
  return base::strait_command("export", run);
}

}  // namespace

CheckpointWeights::CheckpointWeights(const recipe::Recipe& recipe, models::ModelConfig config,
                                     const std::filesystem::path& checkpoint)
    : source_(recipe.model),
      config_(std::move(config)),
      seed_(static_cast<std::uint64_t>(recipe.seed)),
      checkpoint_(checkpoint, store::Verify::sizes, store::Part::weights) {
  for (const models::LayerCost& layer : models::describe(config_).layers) {
    for (const models::TensorShape& tensor : layer.tensors) shapes_.emplace(tensor.name, tensor);
  }
  if (config_.lora != nullptr) with_hashes_ = files_with_hashes(checkpoint_);
}

const ModelWeights& CheckpointWeights::model() const {
  std::call_once(opened_, [this] { model_ = std::make_unique<ModelWeights>(source_, config_); });
  return *model_;
}

// Compares the hash as a stage does when it resumes.
void CheckpointWeights::check_frozen(const models::TensorShape& tensor,
                                     const at::Tensor& values) const {
  const std::string name = stages::frozen_hash_name(tensor.name);
  const auto holder = std::ranges::find_if(
      with_hashes_, [&](const auto& file) { return file->find(name) != nullptr; });
  if (holder == with_hashes_.end()) return;
  at::Tensor hash = (*holder)->read(name);
  // This host has only parts of the file.
  if (hash.eq(0).any().item<bool>()) return;
  const bool wide = tensor.wide || source_.dtype != recipe::Dtype::bfloat16;
  at::TensorOptions options(wide ? at::kFloat : at::kBFloat16);
  if (tensor.quantization) options = options.device(at::kMeta);
  models::Parameter frozen{tensor.name, at::empty(tensor.shape, options)};
  frozen.trained = false;
  if (tensor.quantization) {
    frozen.quantized = kernels::make_quantized_matrix(
        {*tensor.quantization, values.size(0), values.size(1)}, at::kCPU);
  }
  models::assign(frozen, values);
  stages::check_hashes({frozen}, [&](const std::string&) { return hash; });
}

at::Tensor CheckpointWeights::read(const std::string& name) const {
  const models::TensorShape& tensor = shapes_.at(name);
  if (tensor.trained) return checkpoint_.read(name);
  if (source_.weights != recipe::Weights::random) {
    at::Tensor values = model().read(name);
    check_frozen(tensor, values);
    return values;
  }
  const models::Parameter drawn{name, at::empty(tensor.shape)};
  models::initialize(drawn, config_, seed_);
  return drawn.value;
}

at::Tensor CheckpointWeights::read_merged(const std::string& name) const {
  at::Tensor values = read(name).to(at::kFloat);
  if (const auto format = shapes_.at(name).quantization)
    values = dequantized(values, *format, name);
  const std::string matrix = name.substr(0, name.rfind('.'));
  if (!name.ends_with(".weight") || !shapes_.contains(matrix + models::kAdapterDown)) return values;
  const at::NoGradGuard no_grad;
  const double scale = models::adapter_of(*config_.lora, matrix)->scale;
  const at::Tensor down = checkpoint_.read(matrix + models::kAdapterDown);
  const at::Tensor up = checkpoint_.read(matrix + models::kAdapterUp);
  const at::Tensor product = at::mm(up, down).mul_(scale);
  const models::Family& family = models::family_of(config_);
  const bool of_expert = !models::tensor_of_experts(matrix).empty();
  const bool input_first = of_expert ? family.experts_input_first : family.input_first;
  values.add_(input_first ? product.t() : product);
  const at::Tensor outputs = input_first ? values.t() : values;  // [out, in]
  if (!shapes_.contains(matrix + models::kAdapterNorms)) return values;
  const at::Tensor to = checkpoint_.read(matrix + models::kAdapterNorms).to(at::kFloat);
  outputs.mul_(to.div(at::linalg_vector_norm(outputs, 2, at::IntArrayRef{1})).unsqueeze(1));
  return values;
}

ModelWeights::Origin CheckpointWeights::origin(const std::string& name) const {
  if (source_.weights == recipe::Weights::random) return {name, at::kFloat, name};
  // Checkpoints of two runs have the same names and types. The other run may have pruned the
  // checkpoint that this run read.
  const store::TensorInfo* const own = checkpoint_.find(name);
  if (source_.weights == recipe::Weights::run && own != nullptr) {
    return {name, tensors::scalar_type(own->dtype), name};
  }
  return model().origin(name);
}

ModelWeights::ModelWeights(const recipe::Recipe::Model& source, const models::ModelConfig& config) {
  if (source.weights != recipe::Weights::run) {
    files_.emplace(source.path);
    in_file_ = models::match_tensors(config, shapes_of(*files_), source.path);
    return;
  }
  std::error_code none;
  if (!fs::exists(fs::path(source.weights_run) / store::kManifestName, none) && !none) {
    throw base::UserError(
        base::ExitCode::bad_input,
        "the weights that the run began with, {}, are not there any more: a run removes its older "
        "checkpoints (checkpoint.keep). Put that folder back, or start a run of another name",
        source.weights_run);
  }
  checkpoint_.emplace(source.weights_run, store::Verify::sizes, store::Part::weights);
  std::vector<models::TensorShape> shapes;
  bool whole = true;
  for (const models::TensorShape& tensor : models::describe(config).tensors()) {
    const store::TensorInfo* const found = checkpoint_->find(tensor.name);
    if (found != nullptr) shapes.push_back({found->name, found->shape});
    whole = whole && found != nullptr;
  }
  if (!whole && holds_adapters(*checkpoint_)) {
    throw base::UserError(base::ExitCode::bad_input,
                          "model.weights = \"{}\" is a run that trained adapters only; start from "
                          "its adapter (model.adapter = \"from-run\", or with --merge model.path = "
                          "\"from-run\"), which is written by: {} from-run",
                          source.weights_run, export_command(source.weights_run));
  }
  in_file_ = models::match_tensors(config, shapes, source.weights_run);
}

void check_tied_projection(const recipe::Recipe::Model& source, const models::ModelConfig& config) {
  if (source.weights != recipe::Weights::load) return;
  const tensors::WeightFiles files(source.path);
  const auto twice = models::tied_stored_twice(config, shapes_of(files));
  if (!twice) return;
  const std::vector<std::int64_t>& shape = files.find(twice->table)->info.shape;
  bool same = shape == files.find(twice->projection)->info.shape && shape.size() == 2;
  constexpr std::int64_t kRows = 256;  // at a time
  for (std::int64_t row = 0; same && row < shape[0]; row += kRows) {
    const std::int64_t count = std::min(kRows, shape[0] - row);
    same = at::equal(files.read_rows(twice->table, row, count).to(at::kFloat),
                     files.read_rows(twice->projection, row, count).to(at::kFloat));
  }
  if (same) return;
  throw base::UserError(
      base::ExitCode::bad_input,
      "{}: config.json ties the projection to the token table, but {} is another matrix than {}; "
      "set \"tie_word_embeddings\": false there if the file is right, or remove {} from the file",
      source.path, twice->projection, twice->table, twice->projection);
}

void check_reference(const recipe::Recipe& recipe, const std::string& model_config,
                     const models::ModelConfig& config) {
  recipe::Recipe::Model source;
  source.path = recipe.train.preference.reference;
  if (source.path.empty()) return;
  const auto fields_of = [](const std::string& text) {
    nlohmann::json fields = fields::parse_bounded_json(text);
    // Of files and of generation.
    for (const char* name : {"_name_or_path", "transformers_version", "torch_dtype", "dtype",
                             "use_cache", "architectures", "bos_token_id", "eos_token_id",
                             "pad_token_id", "attention_dropout", "quantization_config"}) {
      fields.erase(name);
    }
    return fields;
  };
  const nlohmann::json own = fields_of(model_config);
  const nlohmann::json other = fields_of(read_config(source.path, /*goes_on=*/false));
  const nlohmann::json changes = nlohmann::json::diff(own, other);
  if (!changes.empty()) {
    throw base::UserError(
        base::ExitCode::bad_input,
        "train.preference.reference = \"{}\" has another config.json than model.path = \"{}\": {} "
        "differs; take a model of the same architecture, such as an earlier checkpoint of it",
        source.path, recipe.model.path, changes.front().value("path", "").substr(1));
  }
  check_has_weights(source);
  const ModelWeights weights(source, config);
  check_tied_projection(source, config);
}

at::Tensor ModelWeights::read(const std::string& name) const {
  const std::string& own = in_file_.at(name);
  if (checkpoint_) return checked(checkpoint_->read(own), own, checkpoint_->path());
  const tensors::WeightFiles::Entry& entry = *files_->find(own);
  const auto rows = models::rows_in_file(name, {own, entry.info.shape});
  if (!rows) return checked(files_->read(own), own, entry.file);
  at::Tensor values = files_->read_rows(own, rows->first, rows->count);
  if (!rows->scales.empty()) {
    values = kernels::dequantize_mxfp4(
        values, files_->read_rows(rows->scales, rows->first_scale, rows->scale_count));
  }
  return checked(rows->vector ? values.flatten() : values, own, entry.file);
}

ModelWeights::Origin ModelWeights::origin(const std::string& name) const {
  const std::string& own = in_file_.at(name);
  if (checkpoint_) return {own, tensors::scalar_type(checkpoint_->find(own)->dtype), own};
  const store::TensorInfo& info = files_->find(own)->info;
  const auto rows = models::rows_in_file(name, {own, info.shape});
  // What four bits stand for is exact in bfloat16.
  if (rows && !rows->scales.empty()) return {name, at::kBFloat16, own};
  // Experts leave one by one, as the hub has them.
  return {rows ? name : own, tensors::scalar_type(info.dtype), own};
}

AdapterWeights::AdapterWeights(const std::string& directory, const models::ModelConfig& config) {
  const fs::path file = fs::path(directory) / "adapter_model.safetensors";
  if (!fs::exists(file)) {
    throw base::UserError(base::ExitCode::bad_input,
                          "model.adapter = \"{}\" has no adapter_model.safetensors{}", directory,
                          fs::exists(fs::path(directory) / "adapter_model.bin")
                              ? "; save the adapter again with PEFT's safe_serialization"
                              : "");
  }
  file_.emplace(file);
  in_file_ = models::match_adapter_tensors(config, shapes_of(file_->tensors()), file.string());
}

at::Tensor AdapterWeights::read(const std::string& name) const {
  const auto& [own, part, parts] = in_file_.at(name);
  if (parts == 1) return checked(file_->read(own), own, file_->path());
  constexpr std::size_t kOfBlock = 4;  // two tensors of experts with two matrices each
  const bool known = of_experts_.contains(own);
  if (!known && of_experts_.size() == kOfBlock) of_experts_.clear();
  at::Tensor& whole = of_experts_[own];
  if (!known) whole = checked(file_->read(own), own, file_->path());
  if (own.ends_with(models::kAdapterDown))
    return whole.chunk(parts)[static_cast<std::size_t>(part)];
  return whole.view({whole.size(0), -1, parts}).select(2, part);
}

ChosenWeights with_chosen_checkpoint(recipe::Recipe recipe) {
  if (recipe.model.weights != recipe::Weights::run) return {std::move(recipe), ""};
  const fs::path run = recipe.model.weights_run;
  std::error_code none;
  if (!fs::is_directory(run, none)) {
    throw base::UserError(base::ExitCode::bad_input,
                          "model.weights = \"{}\" {}; it must be the directory of a run, runs/NAME",
                          run.string(), folder_fault(run, store::kManifestName));
  }
  if (fs::exists(run / store::kManifestName)) {  // a checkpoint itself
    return {std::move(recipe), ""};
  }
  const auto newest = store::choose_checkpoint(run, store::Part::weights);
  if (!newest) {
    throw base::UserError(base::ExitCode::bad_input,
                          "model.weights = \"{}\" is a directory without a complete checkpoint; it "
                          "must be that of a run, runs/NAME",
                          run.string());
  }
  recipe.model.weights_run = newest->checkpoint.path.string();
  return {std::move(recipe), newest->warning};
}

}  // namespace strait::planner
