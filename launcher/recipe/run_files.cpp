#include "launcher/recipe/run_files.h"

#include <nlohmann/json.hpp>

#include "framework/fields/bounded_json.h"
#include "framework/json_depth.h"
#include "framework/store/atomic_file.h"
#include "framework/store/file_hash.h"
#include "framework/store/input_file.h"
#include "framework/store/memory_directory.h"
#include "framework/store/step_folders.h"
#include "launcher/base/errors.h"
#include "launcher/base/own_program.h"
#include "launcher/recipe/resume.h"

namespace strait::plan {

namespace {

constexpr std::uint64_t kMostPlanBytes = std::uint64_t{1} << 30;

}  // namespace

Plan without_secrets(Plan plan) {
  plan.recipe = recipe::without_secrets(std::move(plan.recipe));
  return plan;
}

// Variables of hosts are part of plan.json and recipe.toml. Errors are ignored, because a file
// system without permissions is not shared with other users.
void protect_secrets(const std::filesystem::path& directory, const recipe::Recipe& recipe) {
  std::error_code ignored;
  if (recipe::without_secrets(recipe) != recipe) {
    std::filesystem::permissions(directory, std::filesystem::perms::owner_all, ignored);
  }
}

namespace {

// The folder that these weights have in this run. Nullopt: the path is not such a folder.
std::optional<std::filesystem::path> base_in(const std::filesystem::path& run,
                                             const recipe::Recipe::Model& model) {
  const std::filesystem::path base = model.weights_run;
  if (model.weights != recipe::Weights::run) return std::nullopt;
  if (base.parent_path().filename() != kBaseFolder) return std::nullopt;
  return std::filesystem::absolute(run / kBaseFolder / base.filename()).lexically_normal();
}

// Rows that the run made are in its directory, which may have been moved since. A token file of the
// user has another name or folder, so it stays where it is.
void find_own_rows(const std::filesystem::path& run, std::string_view name, Plan::Data& data) {
  const std::filesystem::path file = data.file;
  if (file.parent_path().filename() != kRowsFolder || file.filename() != name) return;
  const std::filesystem::path own =
      std::filesystem::absolute(run / kRowsFolder / name).lexically_normal();
  std::error_code none;
  if (std::filesystem::exists(own, none)) data.file = own.string();
}

nlohmann::json parse_json(const std::string& text, const std::filesystem::path& file) {
  const auto damaged = [&file](std::string_view why) {
    return base::UserError(
        base::ExitCode::corrupt,
        "{} is damaged: {}. Put a copy of it back, or start a run of another name that "
        "begins with the weights of a checkpoint: model.weights = \"{}/step-N\"",
        file.string(), why, (file.parent_path() / store::kCheckpointsFolder).string());
  };
  if (json_depth(text) > kMostJsonDepth) throw damaged("its lists and objects are nested too deep");
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception& error) {  // syntax, or a number that no double holds
    throw damaged(fields::plain_json_reason(error.what()));
  }
}

Plan plan_in(const nlohmann::json& whole, const std::filesystem::path& file) {
  try {
    return plan_from_json(whole.at("plan"));
  } catch (const base::UserError& error) {
    throw base::UserError(error.code(), "{}: {}", file.string(), error.what());
  }
}

}  // namespace

std::optional<std::filesystem::path> own_base(const std::filesystem::path& run, const Plan& plan) {
  // Without adapters, such a path names the base of another run.
  return plan.recipe.model.lora ? base_in(run, plan.recipe.model) : std::nullopt;
}

void find_own_base(const std::filesystem::path& run, recipe::Recipe& recipe) {
  const std::optional<std::filesystem::path> own = base_in(run, recipe.model);
  std::error_code none;
  if (own && std::filesystem::exists(*own / store::kManifestName, none)) {
    recipe.model.weights_run = own->string();
  }
}

std::string run_file_text(const RunFile& run) {
  nlohmann::json whole = {
      {"run", run.run.hex()}, {"build", base::build_id()}, {"plan", to_json(run.plan)}};
  // Only where it differs, so that the plan of most runs has one truth.
  if (!run.recipe_hash.empty()) whole["recipe_hash"] = run.recipe_hash;
  return whole.dump(1) + "\n";
}

void write_run_file(const std::filesystem::path& file, const RunFile& run) {
  protect_secrets(file.parent_path(), run.plan.recipe);
  store::replace_file(file, run_file_text(run));
}

RunFile read_run_file(const std::filesystem::path& file, const recipe::LoadPlugins& load) {
  if (!store::is_present(file)) base::refuse_no_run(file.parent_path());
  return parse_run_file(store::read_text_file(file, kMostPlanBytes), file, load);
}

RunFile parse_run_file(const std::string& text, const std::filesystem::path& file,
                       const recipe::LoadPlugins& load) {
  const nlohmann::json whole = parse_json(text, file);
  try {
    const auto run = net::RunId::parse(whole.at("run").get<std::string>());
    if (!run) {
      throw base::UserError(base::ExitCode::mismatch,
                            file.string() + ": the run's id is not 32 hex digits");
    }
    RunFile read{*run, plan_in(whole, file), whole.value("recipe_hash", "")};
    // Before anything looks at names: a schedule or model of a plugin is unknown until then.
    load(read.plan.recipe.plugins);
    find_own_rows(file.parent_path(), kTrainRows, read.plan.train);
    recipe::Recipe found = read.plan.recipe;
    find_own_base(file.parent_path(), found);
    if (found.model != read.plan.recipe.model) {
      // the run's checkpoints record the hash of the former path
      read.recipe_hash = recipe_hash(read);
      read.plan.recipe = std::move(found);
    }
    if (read.plan.eval) find_own_rows(file.parent_path(), kEvalRows, *read.plan.eval);
    return read;
  } catch (const nlohmann::json::exception& error) {
    throw base::UserError(base::ExitCode::mismatch, "{} is not a plan of this build: {}",
                          file.string(), fields::plain_json_reason(error.what()));
  }
}

std::string recipe_hash(const RunFile& run) {
  if (!run.recipe_hash.empty()) return run.recipe_hash;
  recipe::Recipe recipe = run.plan.recipe;
  recipe.plugins = {};
  recipe.pipeline = {};
  recipe.codec = {};
  // The defaults of the release that made the first runs.
  recipe.codec.forward_bits = 4;
  recipe.codec.backward_bits = 8;
  recipe.sync = {};
  recipe.checkpoint = {};
  recipe.hosts = {};
  recipe.on = {};
  recipe.train.stop_when = {};
  return store::hash_text(recipe::recipe_to_toml(recipe));
}

void check_same_rows(const Plan::Data& data, const std::string& now, std::string_view began,
                     std::string_view remedy) {
  if (now == data.hash) return;
  throw base::UserError(base::ExitCode::mismatch,
                        "{} has changed since the run {} (its rows have the hash {}, "
                        "and had {}); put it back, or {}",
                        data.file, began, now, data.hash, remedy);
}

store::Manifest manifest_for(const RunFile& run, std::uint32_t generation, store::Step step) {
  store::Manifest manifest;
  manifest.run_id = run.run.hex();
  manifest.generation = generation;
  manifest.step = step;
  manifest.model_hash = run.plan.model_hash;
  manifest.recipe_hash = recipe_hash(run);
  manifest.plan_hash = run.plan.hash();
  manifest.build = base::build_id();
  for (const Plan::Process& process : run.plan.processes) {
    for (const models::LayerRange& layers : process.chunks) {
      manifest.layout.push_back(
          store::Share{process.name.stage, process.name.replica, layers.first, layers.last});
    }
  }
  manifest.data = {run.plan.train.hash, run.plan.train.rows, step};
  manifest.sync = saved_sync(run.plan);
  if (const std::string kept = saved_caches(run.plan); !kept.empty()) {
    manifest.notes[kCachesNote] = kept;
  }
  return manifest;
}

std::vector<WrittenShard> written_shards(const Plan& plan,
                                         const std::vector<store::ShardFile>& files) {
  std::map<std::string, const Plan::Process*> writers;
  for (const Plan::Process& process : plan.processes) {
    for (const std::string& name : store::file_names(process.name.stage, process.name.replica)) {
      writers[name] = &process;
    }
  }
  std::vector<WrittenShard> shards;
  for (const store::ShardFile& file : files) {
    const auto found = writers.find(file.name);
    if (found == writers.end()) continue;
    shards.push_back({file, found->second->name, found->second->host_index});
  }
  return shards;
}

std::filesystem::path memory_directory(const net::RunId& run, std::size_t host) {
  return store::MemoryDirectory::path_of(fmt::format("{}-{}", run.hex(), host));
}

std::vector<std::optional<std::size_t>> memory_neighbours(const Plan& plan) {
  std::vector<std::size_t> used;
  for (std::size_t host = 0; host < plan.hosts.size(); ++host) {
    if (std::ranges::count(plan.processes, host, &Plan::Process::host_index) > 0) {
      used.push_back(host);
    }
  }
  std::vector<std::optional<std::size_t>> neighbours(plan.hosts.size());
  if (used.size() < 2) return neighbours;
  for (std::size_t i = 0; i < used.size(); ++i) neighbours[used[i]] = used[(i + 1) % used.size()];
  return neighbours;
}

std::int64_t held_bytes(const Plan& plan, std::size_t host) {
  if (plan.recipe.checkpoint.memory_every == 0) return 0;
  constexpr std::int64_t kGenerations = 2;
  const auto neighbours = memory_neighbours(plan);
  std::int64_t bytes = 0;
  for (const Plan::Process& process : plan.processes) {
    const std::int64_t one = process.saved_bytes + process.cache_bytes;
    const std::size_t owner = process.host_index;
    if (owner == host) bytes += kGenerations * one;
    if (neighbours[owner] == host) bytes += kGenerations * one;
  }
  return bytes;
}

}  // namespace strait::plan
