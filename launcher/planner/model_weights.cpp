#include "launcher/planner/model_weights.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "framework/store/checkpoint.h"
#include "kernels/mxfp4.h"
#include "launcher/base/command_name.h"
#include "launcher/base/errors.h"
#include "launcher/planner/model_folder.h"
#include "models/lora.h"
#include "models/tensor_names.h"

namespace strait::planner {
namespace {

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
      fmt::format("{}: tensor {} has values that are not finite; get the file again, or train from "
                  "another one",
                  file.string(), name));
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
        fmt::format("the weights that the run began with, {}, are not there any more: a run "
                    "removes its older checkpoints (checkpoint.keep). Put that folder back, or "
                    "start a run of another name",
                    source.weights_run));
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
    throw base::UserError(
        base::ExitCode::bad_input,
        fmt::format("model.weights = \"{}\" is a run that trained adapters only; start from its "
                    "adapter (model.adapter = \"from-run\", or with --merge model.path = "
                    "\"from-run\"), which is written by: {} from-run",
                    source.weights_run, export_command(source.weights_run)));
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
  constexpr std::int64_t kRows = 64;  // every row of a trained projection differs
  const std::int64_t stride = same ? std::max<std::int64_t>(shape[0] / kRows, 1) : 1;
  for (std::int64_t row = 0; same && row < shape[0]; row += stride) {
    same = at::equal(files.read_rows(twice->table, row, 1).to(at::kFloat),
                     files.read_rows(twice->projection, row, 1).to(at::kFloat));
  }
  if (same) return;
  throw base::UserError(
      base::ExitCode::bad_input,
      fmt::format(
          "{}: config.json ties the projection to the token table, but {} is another matrix "
          "than {}; set \"tie_word_embeddings\": false there if the file is right, or remove "
          "{} from the file",
          source.path, twice->projection, twice->table, twice->projection));
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
  if (checkpoint_) return {own, tensors::scalar_type(checkpoint_->find(own)->dtype)};
  const store::TensorInfo& info = files_->find(own)->info;
  const auto rows = models::rows_in_file(name, {own, info.shape});
  // What four bits stand for is exact in bfloat16.
  if (rows && !rows->scales.empty()) return {name, at::kBFloat16};
  // Experts leave one by one, as the hub has them.
  return {rows ? name : own, tensors::scalar_type(info.dtype)};
}

AdapterWeights::AdapterWeights(const std::string& directory, const models::ModelConfig& config) {
  const fs::path file = fs::path(directory) / "adapter_model.safetensors";
  if (!fs::exists(file)) {
    throw base::UserError(
        base::ExitCode::bad_input,
        fmt::format("model.adapter = \"{}\" has no adapter_model.safetensors{}", directory,
                    fs::exists(fs::path(directory) / "adapter_model.bin")
                        ? "; save the adapter again with PEFT's safe_serialization"
                        : ""));
  }
  file_.emplace(file);
  in_file_ = models::match_adapter_tensors(config, shapes_of(file_->tensors()), file.string());
}

at::Tensor AdapterWeights::read(const std::string& name) const {
  const std::string& own = in_file_.at(name);
  return checked(file_->read(own), own, file_->path());
}

ChosenWeights with_chosen_checkpoint(recipe::Recipe recipe) {
  if (recipe.model.weights != recipe::Weights::run) return {std::move(recipe), ""};
  const fs::path run = recipe.model.weights_run;
  std::error_code none;
  if (!fs::is_directory(run, none)) {
    throw base::UserError(
        base::ExitCode::bad_input,
        fmt::format("model.weights = \"{}\" {}; it must be the directory of a run, runs/NAME",
                    run.string(), folder_fault(run, store::kManifestName)));
  }
  if (fs::exists(run / store::kManifestName)) {  // a checkpoint itself
    return {std::move(recipe), ""};
  }
  const auto newest = store::choose_checkpoint(run, store::Part::weights);
  if (!newest) {
    throw base::UserError(base::ExitCode::bad_input,
                          fmt::format("model.weights = \"{}\" is a directory without a complete "
                                      "checkpoint; it must be that of a run, runs/NAME",
                                      run.string()));
  }
  recipe.model.weights_run = newest->checkpoint.path.string();
  return {std::move(recipe), newest->warning};
}

}  // namespace strait::planner
