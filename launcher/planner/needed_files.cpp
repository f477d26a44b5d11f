#include "launcher/planner/needed_files.h"

#include "framework/store/input_file.h"
#include "framework/tensors/safetensors_reader.h"
#include "framework/tensors/weight_files.h"
#include "launcher/planner/planned_model.h"
#include "launcher/recipe/run_files.h"
#include "models/tensor_names.h"

namespace strait::planner {
namespace {

namespace fs = std::filesystem;
using GroupKind = transfer::NeededGroup::Kind;

std::uint64_t header_bytes(const fs::path& safetensors) {
  const store::InputFile file(safetensors);
  std::uint64_t length = 0;
  file.read(0, std::as_writable_bytes(std::span(&length, 1)));
  return sizeof length + length;
}

std::vector<const plan::Plan::Process*> processes_of(const plan::Plan& plan, std::size_t host) {
  std::vector<const plan::Plan::Process*> found;
  for (const plan::Plan::Process& process : plan.processes) {
    if (process.host_index == host) found.push_back(&process);
  }
  return found;
}

bool reads_rows(const plan::Plan& plan, std::size_t host) {
  const auto last = static_cast<std::uint32_t>(plan.recipe.pipeline.stages - 1);
  return std::ranges::any_of(processes_of(plan, host), [last](const plan::Plan::Process* process) {
    return process->name.stage == 0 || process->name.stage == last;
  });
}

// Canonical names of the tensors that the host's stages own. A tied table belongs to the stage of
// the LM head. If no link ties the two stages (the table is frozen, or nothing is trained), both
// have a copy.
std::set<std::string> own_tensors(const plan::Plan& plan, std::size_t host) {
  const models::ModelDescription model = models::describe(planned_model(plan));
  const bool linked = std::ranges::any_of(
      plan.links, [](const plan::Plan::Link& link) { return link.use == plan::Plan::Use::tie; });
  std::set<std::string> names;
  for (const plan::Plan::Process* process : processes_of(plan, host)) {
    const bool has_head = process->chunks.back().last + 1 == std::ssize(model.layers);
    const std::string& tied = model.layers.back().tied_to;
    for (const models::LayerRange& layers : process->chunks) {
      for (int layer = layers.first; layer <= layers.last; ++layer) {
        const models::LayerCost& cost = model.layers.at(static_cast<std::size_t>(layer));
        for (const models::TensorShape& tensor : cost.tensors) {
          if (tensor.name != tied || has_head || !linked) names.insert(tensor.name);
        }
      }
    }
    if (has_head && !tied.empty()) names.insert(tied);
  }
  return names;
}

std::set<std::string> all_tensors(const plan::Plan& plan) {
  std::set<std::string> names;
  for (const models::LayerCost& layer : models::describe(planned_model(plan)).layers) {
    for (const models::TensorShape& tensor : layer.tensors) names.insert(tensor.name);
  }
  return names;
}

transfer::NeededGroup adapter_files(const plan::Plan& plan) {
  const fs::path directory = fs::absolute(plan.recipe.model.adapter);
  transfer::NeededGroup group{GroupKind::adapter, {}};
  for (const char* name : {"adapter_config.json", "adapter_model.safetensors"}) {
    group.files.push_back({directory / name, name});
  }
  return group;
}

// All dimensions but the last counted as one.
std::int64_t rows_of(const tensors::WeightFiles::Entry& entry) {
  std::int64_t rows = 1;
  for (std::size_t i = 0; i + 1 < entry.info.shape.size(); ++i) rows *= entry.info.shape[i];
  return rows;
}

// The file's first range is its header.
void add_rows(const tensors::WeightFiles::Entry& entry, std::int64_t first, std::int64_t count,
              std::map<fs::path, transfer::NeededFile>& files) {
  transfer::NeededFile& file = files.at(entry.file);
  const std::uint64_t bytes = entry.info.bytes() / static_cast<std::uint64_t>(rows_of(entry));
  const std::uint64_t begin =
      file.ranges.front().end + entry.info.begin + static_cast<std::uint64_t>(first) * bytes;
  file.ranges.push_back({begin, begin + static_cast<std::uint64_t>(count) * bytes});
}

transfer::NeededGroup model_files(const plan::Plan& plan, std::size_t host,
                                  const std::string& model, GroupKind kind) {
  const fs::path directory = fs::absolute(model);
  const tensors::WeightFiles weights(directory);
  std::vector<models::TensorShape> shapes;
  std::map<fs::path, transfer::NeededFile> files;
  for (const auto& entry : weights.tensors()) {
    shapes.push_back({entry.info.name, entry.info.shape});
    transfer::NeededFile& file = files[entry.file];
    if (!file.from.empty()) continue;
    file = {entry.file, entry.file.lexically_relative(directory).string(), false, {}};
    file.ranges.push_back({0, header_bytes(entry.file)});
  }
  const auto in_file = models::match_tensors(planned_model(plan), shapes, directory.string());
  for (const std::string& name : own_tensors(plan, host)) {
    const auto found = in_file.find(name);
    if (found == in_file.end()) continue;
    const tensors::WeightFiles::Entry& entry = *weights.find(found->second);
    const auto rows = models::rows_in_file(name, {found->second, entry.info.shape});
    if (!rows) {
      add_rows(entry, 0, rows_of(entry), files);
      continue;
    }
    add_rows(entry, rows->first, rows->count, files);
    if (rows->scales.empty()) continue;
    add_rows(*weights.find(rows->scales), rows->first_scale, rows->scale_count, files);
  }
  transfer::NeededGroup group{kind, {}};
  for (const char* name : {"config.json", "model.safetensors.index.json"}) {
    if (fs::exists(directory / name)) group.files.push_back({directory / name, name});
  }
  for (auto& [path, file] : files) group.files.push_back(std::move(file));
  return group;
}

// Whether a tensor of a checkpoint (weight, master, moment) belongs to one of these parameters: its
// name contains the parameter's name.
bool made_of(const std::string& tensor, const std::set<std::string>& names) {
  return std::ranges::any_of(
      names, [&tensor](const std::string& name) { return tensor.find(name) != std::string::npos; });
}

}  // namespace

std::vector<transfer::NeededGroup> needed_files(const plan::Plan& plan, std::size_t host,
                                                const std::vector<plan::PluginCopy>& plugins,
                                                bool weights) {
  std::vector<transfer::NeededGroup> groups;
  if (!plan.train.file.empty() && reads_rows(plan, host)) {
    groups.push_back({GroupKind::train, {{fs::absolute(plan.train.file), plan::kTrainRows}}});
    if (plan.eval) {
      groups.push_back({GroupKind::eval, {{fs::absolute(plan.eval->file), plan::kEvalRows}}});
    }
  }
  const recipe::Recipe::Model& source = plan.recipe.model;
  if (weights && source.weights == recipe::Weights::load) {
    groups.push_back(model_files(plan, host, source.path, GroupKind::model));
  }
  const std::string& reference = plan.recipe.train.preference.reference;
  if (weights && !reference.empty()) {
    groups.push_back(model_files(plan, host, reference, GroupKind::reference));
  }
  if (weights && source.weights == recipe::Weights::run) {
    groups.push_back(
        needed_checkpoint(plan, host, fs::absolute(source.weights_run), store::Part::weights));
    groups.back().kind = GroupKind::weights;
  }
  if (weights && !source.adapter.empty()) groups.push_back(adapter_files(plan));
  if (!plugins.empty()) {
    transfer::NeededGroup group{GroupKind::plugins, {}};
    for (std::size_t i = 0; i < plugins.size(); ++i) {
      const fs::path file = fs::absolute(plugins[i].file);
      group.files.push_back({file, transfer::delivered_plugin_name(i, file)});
    }
    groups.push_back(std::move(group));
  }
  return groups;
}

transfer::NeededGroup needed_checkpoint(const plan::Plan& plan, std::size_t host,
                                        const fs::path& checkpoint, store::Part part) {
  const store::Manifest manifest = store::open_checkpoint(checkpoint, store::Verify::sizes, part);
  const std::set<std::string> own = own_tensors(plan, host);
  const std::set<std::string> all = all_tensors(plan);
  std::set<std::string> own_files;
  std::set<std::string> caches;
  for (const store::Share& share : manifest.layout) {
    caches.insert(store::caches_name(share.stage, share.replica));
  }
  for (const plan::Plan::Process* process : processes_of(plan, host)) {
    for (std::string& name : store::file_names(process->name.stage, process->name.replica)) {
      own_files.insert(std::move(name));
    }
  }
  transfer::NeededGroup group{GroupKind::checkpoint,
                              {{checkpoint / store::kManifestName, store::kManifestName}}};
  for (const store::ShardFile& shard : store::files_of(manifest, part)) {
    transfer::NeededFile file{
        checkpoint / shard.name, shard.name, own_files.contains(shard.name), {}};
    if (!file.whole) {
      const std::uint64_t data = header_bytes(file.from);
      file.ranges.push_back({0, data});
      const tensors::SafetensorsReader reader(file.from);
      for (const store::TensorInfo& tensor : reader.tensors()) {
        // processes of this host do not use caches of others
        if (caches.contains(shard.name)) break;
        if (!made_of(tensor.name, own) && made_of(tensor.name, all)) continue;
        file.ranges.push_back({data + tensor.begin, data + tensor.end});
      }
    }
    group.files.push_back(std::move(file));
  }
  return group;
}

}  // namespace strait::planner
