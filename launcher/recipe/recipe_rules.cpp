#include <fmt/format.h>
#include <fmt/ranges.h>

#include "launcher/recipe/recipe_assembly.h"
#include "launcher/recipe/recipe_keys.h"
#include "launcher/recipe/recipe_sync_keys.h"

namespace strait::recipe {
namespace {

// Where the recipe sets some of these keys, for "(recipes/x.toml:3:9)".
std::string origins_of(std::initializer_list<std::string_view> keys, const Origins& origins,
                       const std::string& source) {
  std::vector<std::string_view> known;
  for (const auto key : keys) {
    if (const auto place = origins.find(key); place != origins.end()) {
      known.push_back(place->second);
    }
  }
  return known.empty() ? source : fmt::format("{}", fmt::join(known, ", "));
}

void check_data(const Recipe& recipe, const OriginsOf& at, Mistakes& mistakes) {
  const Recipe::Data& data = recipe.data;
  if (recipe.train.eval_every > 0 && data.eval.empty() && data.hold_out == 0) {
    mistakes.push_back(
        fmt::format("train.eval_every is {} ({}), but data.eval is missing; set it to a data file, "
                    "or set data.hold_out",
                    recipe.train.eval_every, at({"train.eval_every"})));
  }
  if (data.hold_out > 0 && !data.eval.empty()) {
    mistakes.push_back(
        fmt::format("data.hold_out and data.eval are both set ({}); keep one of them: the records "
                    "that are held out are what is evaluated",
                    at({"data.hold_out", "data.eval"})));
  }
  if (recipe.train.min_rate > recipe.train.learning_rate) {
    mistakes.push_back(
        fmt::format("train.min_rate is {} ({}), but must not be above train.learning_rate, {}",
                    recipe.train.min_rate, at({"train.min_rate", "train.learning_rate"}),
                    recipe.train.learning_rate));
  }
  if (recipe.train.optimizer == OptimizerKind::muon &&
      (recipe.train.offload != Offload::none || recipe.train.choose_offload)) {
    mistakes.push_back(fmt::format(
        "train.offload and train.optimizer = \"muon\" are both set ({}), but only AdamW's state is "
        "off-loaded: the CPU of a GPU would take minutes for Muon's products; leave one of them "
        "out",
        at({"train.offload", "train.optimizer"})));
  }
  if (data.overlap >= data.row) {
    mistakes.push_back(fmt::format("data.overlap is {} ({}), but must be less than data.row, {}",
                                   data.overlap, at({"data.overlap", "data.row"}), data.row));
  }
}

// What ends a run early or keeps checkpoints by the evaluation loss.
void check_by_evaluation(const Recipe& recipe, const Origins& origins, const OriginsOf& at,
                         Mistakes& mistakes) {
  const trace::EarlyStop::Rule& stop = recipe.train.stop_when;
  const std::int64_t evaluated = recipe.train.eval_every;
  constexpr std::string_view kStop = "train.stop_when.no_better";
  if (stop.no_better == 0 && origins.contains("train.stop_when.min_delta")) {
    mistakes.push_back(
        fmt::format("train.stop_when.min_delta is set ({}), but {} is missing, and "
                    "without it no run ends early; set it too, for example to 3",
                    at({"train.stop_when.min_delta"}), kStop));
  }
  if (stop.no_better > 0 && evaluated == 0) {
    mistakes.push_back(fmt::format(
        "{} is {} ({}), but nothing is evaluated before the last step; set train.eval_every to a "
        "number of steps, and data.eval or data.hold_out",
        kStop, stop.no_better, at({kStop})));
  }
  if (stop.no_better > 0 && recipe.sync.on_loss == LossRule::continue_run) {
    mistakes.push_back(fmt::format(
        "{} is {}, but sync.on_loss is \"continue\" ({}): a replica that comes back has not seen "
        "all evaluations; leave one of them out",
        kStop, stop.no_better, at({kStop, "sync.on_loss"})));
  }
  const std::int64_t saved = recipe.checkpoint.every;
  if (recipe.checkpoint.keep_best == 0) return;
  if (evaluated == 0 || saved == 0 || saved % evaluated != 0) {
    mistakes.push_back(fmt::format(
        "checkpoint.keep_best is set, but checkpoint.every is {} and train.eval_every {} ({}); it "
        "needs an evaluation of every checkpoint: make checkpoint.every a multiple of "
        "train.eval_every, both above 0",
        saved, evaluated, at({"checkpoint.keep_best", "checkpoint.every", "train.eval_every"})));
  }
}

// What dpo and kto compare with.
void check_reference(const Recipe& recipe, const OriginsOf& at, Mistakes& mistakes) {
  const PreferenceSettings& preference = recipe.train.preference;
  const std::string_view loss = name_of(preference.loss);
  const bool adapters = recipe.model.lora || !recipe.model.adapter.empty();
  if (adapters && !preference.reference.empty()) {
    mistakes.push_back(
        fmt::format("train.preference.reference is set ({}), but adapters are trained, and \"{}\" "
                    "compares with the model without them; leave it out",
                    at({"train.preference.reference"}), loss));
  }
  if (recipe.model.lora && !recipe.model.lora->modules_to_save.empty()) {
    mistakes.push_back(
        fmt::format("model.lora.modules_to_save is set ({}), but train.preference.loss is \"{}\", "
                    "which compares with the model without adapters, and these modules have no "
                    "other weights; leave it out",
                    at({"model.lora.modules_to_save"}), loss));
  }
  if (!adapters && recipe.sync.on_loss == LossRule::continue_run) {
    mistakes.push_back(fmt::format(
        "sync.on_loss is \"continue\" ({}), but train.preference.loss is \"{}\" and the whole "
        "model is trained: a replica that rejoins has no model to compare with any more; set "
        "sync.on_loss to \"stop\", or train adapters",
        at({"sync.on_loss"}), loss));
  }
}

// The losses of pairs, what they need and what they exclude.
void check_preference(const Recipe& recipe, const Origins& origins, const OriginsOf& at,
                      Mistakes& mistakes) {
  const PreferenceSettings& preference = recipe.train.preference;
  const std::string_view loss = name_of(preference.loss);
  const bool simpo = preference.loss == PreferenceKind::simpo;
  const bool kto = preference.loss == PreferenceKind::kto;
  for (const auto& [key, is_read] :
       {std::pair<std::string_view, bool>("train.preference.beta",
                                          preference.loss != PreferenceKind::none),
        {"train.preference.margin", simpo},
        {"train.preference.reference", has_reference(preference.loss)},
        {"train.preference.desirable_weight", kto},
        {"train.preference.undesirable_weight", kto}}) {
    if (is_read || !origins.contains(key)) continue;
    mistakes.push_back(fmt::format(
        "{} is set ({}), but train.preference.loss is \"{}\", which does not read it; leave it out",
        key, at({key}), loss));
  }
  if (preference.loss == PreferenceKind::none) return;
  if (origins.contains("data.targets")) {
    mistakes.push_back(
        fmt::format("data.targets is set ({}), but train.preference.loss is \"{}\", which learns "
                    "from the answers only; leave it out",
                    at({"data.targets"}), loss));
  }
  if (recipe.data.too_long == data::TooLong::truncate ||
      recipe.data.too_long == data::TooLong::split) {
    mistakes.push_back(
        fmt::format("data.too_long is \"{}\" ({}), but a preference has both of its answers in one "
                    "row; set it to \"drop\", or make data.row longer",
                    name_of(recipe.data.too_long), at({"data.too_long"})));
  }
  if (has_reference(preference.loss)) check_reference(recipe, at, mistakes);
}

// Bits are read by codecs that quantise only, and without a codec values are sent raw.
void check_codecs(const Recipe::Codec& codec, const Origins& origins, const OriginsOf& at,
                  Mistakes& mistakes) {
  for (const std::string key : kChosenByBudget) {
    if (codec.budget == 0 || !origins.contains(key)) continue;
    mistakes.push_back(fmt::format(
        "{} is set ({}), but with codec.budget the plan chooses codecs and bits; leave one out",
        key, at({key})));
  }
  for (const auto& [key, name] :
       {std::pair<std::string, std::string>("codec.forward", codec.forward),
        {"codec.backward", codec.backward}}) {
    const bool caches = name == "delta" || (name == "transform" && key == "codec.forward");
    if (caches && codec.cache + codec.cache_disk == 0) {
      mistakes.push_back(
          fmt::format("codec.cache and codec.cache_disk are both 0 ({}), but {} is \"{}\", which "
                      "needs them for its activation cache; set one of them, or {} = \"fixed\"",
                      at({"codec.cache", "codec.cache_disk"}), key, name, key));
    }
    const std::string bits = key + "_bits";
    if (!origins.contains(bits) || origins.contains(key)) continue;
    mistakes.push_back(
        fmt::format("{} is set ({}), but {} is missing, and without it values are sent raw; set {} "
                    "too, for example to \"fixed\"",
                    bits, at({bits}), key, key));
  }
}

// A run that takes another layout starts again by itself.
void check_replan(const Recipe& recipe, const OriginsOf& at, Mistakes& mistakes) {
  const bool restarts = stores_on_hosts(recipe.hosts.backend) && recipe.hosts.restart != 0;
  if (!recipe.pipeline.replan || restarts) return;
  mistakes.push_back(
      fmt::format("pipeline.replan is true ({}), but this run does not start again by itself; it "
                  "goes with a list of hosts and hosts.restart above 0",
                  at({"pipeline.replan", "hosts.backend", "hosts.restart"})));
}

void check_hosts(const Recipe::Hosts& hosts, const OriginsOf& at, Mistakes& mistakes) {
  const BackendKind backend = hosts.backend;
  const bool listed = stores_on_hosts(backend);
  if (listed == hosts.list.empty()) {
    mistakes.push_back(fmt::format(
        "hosts.list is {} while hosts.backend is \"{}\" ({}); a list of hosts goes with \"ssh\" "
        "and \"join\"",
        listed ? "missing" : "set", name_of(backend), at({"hosts.backend", "hosts.list"})));
  }
  const auto only_for = [&](bool used, BackendKind kind, std::string_view key) {
    if (!used || backend == kind) return;
    mistakes.push_back(
        fmt::format("{} is set while hosts.backend is \"{}\" ({}); it goes with \"{}\"", key,
                    name_of(backend), at({"hosts.backend", key}), name_of(kind)));
  };
  if (!hosts.spare.empty() && !listed) {
    mistakes.push_back(fmt::format(
        "hosts.spare is set while hosts.backend is \"{}\" ({}); it goes with a list of hosts",
        name_of(backend), at({"hosts.backend", "hosts.spare"})));
  }
  only_for(hosts.simulate.any(), BackendKind::local, "hosts.simulate");
  for (const RecipeHost& spare : hosts.spare) {
    if (std::ranges::find(hosts.list, spare.name, &RecipeHost::name) == hosts.list.end()) continue;
    mistakes.push_back(fmt::format("host {} is in hosts.list and in hosts.spare ({}); keep one",
                                   spare.name, at({"hosts.list", "hosts.spare"})));
  }
}

void check_cuts(const Recipe::Hosts& hosts, const Origins& origins, const OriginsOf& at,
                Mistakes& mistakes) {
  constexpr std::string_view kKey = "hosts.simulate.cut_for";
  if (!origins.contains(kKey) || hosts.simulate.cut_every.count() > 0) return;
  mistakes.push_back(
      fmt::format("{} is set ({}), but hosts.simulate.cut_every is missing, and without it no link "
                  "is cut; set it too, for example to \"30s\"",
                  kKey, at({kKey})));
}

// What checkpoints in memory cannot be combined with.
void check_memory_checkpoints(const Recipe& recipe, const OriginsOf& at, Mistakes& mistakes) {
  if (recipe.checkpoint.memory_every == 0) return;
  const auto refuse = [&](std::string_view key, std::string_view value, std::string_view why) {
    mistakes.push_back(fmt::format("checkpoint.memory_every is set, but {} is {} ({}): {}", key,
                                   value, at({"checkpoint.memory_every", key}), why));
  };
  if (recipe.sync.on_loss == LossRule::continue_run) {
    refuse("sync.on_loss", "\"continue\"",
           "then the other replicas hold the newest state of a lost host; leave one of them out");
  }
  if (recipe.checkpoint.memory == 0) {
    refuse("checkpoint.memory", "0",
           "they are copied while training goes on, which takes memory; raise it");
  }
}

}  // namespace

void check_required(const Recipe& recipe, const std::string& source, const Origins& origins,
                    Mistakes& mistakes) {
  const auto& train = recipe.train;
  if (recipe.model.path.empty() && !origins.contains("model.path")) {
    mistakes.push_back(fmt::format(
        "model.path is missing ({}): say which model to train, a Hugging Face directory", source));
  }
  if (recipe.data.train.empty() && !origins.contains("data.train")) {
    mistakes.push_back(fmt::format(
        "data.train is missing ({}): say what to train on, a text or JSONL file", source));
  }
  if (!origins.contains("train.steps") && !origins.contains("train.epochs")) {
    mistakes.push_back(fmt::format(
        "train.steps is missing ({}): say how long to train, in steps or in epochs", source));
  }
  if (train.steps && train.epochs) {
    mistakes.push_back(
        fmt::format("train.steps ({}) and train.epochs ({}) are both set; keep one of them",
                    origins.at("train.steps"), origins.at("train.epochs")));
  }
}

void check_consistent(const Recipe& recipe, const std::string& source, const Origins& origins,
                      Mistakes& mistakes) {
  const auto at = [&](std::initializer_list<std::string_view> keys) {
    return origins_of(keys, origins, source);
  };
  check_pipeline(recipe, at, mistakes);
  if (recipe.model.quantization != Quantization::none && !recipe.model.lora &&
      recipe.model.adapter.empty()) {
    mistakes.push_back(fmt::format(
        "model.quantization is \"{}\" ({}), but the whole model is trained, and weights of few "
        "bits cannot be; add model.lora or model.adapter, or leave it out",
        name_of(recipe.model.quantization), at({"model.quantization"})));
  }
  check_data(recipe, at, mistakes);
  check_by_evaluation(recipe, origins, at, mistakes);
  check_preference(recipe, origins, at, mistakes);
  check_codecs(recipe.codec, origins, at, mistakes);
  check_hosts(recipe.hosts, at, mistakes);
  check_cuts(recipe.hosts, origins, at, mistakes);
  check_replan(recipe, at, mistakes);
  check_memory_checkpoints(recipe, at, mistakes);
}

void check_sync(const std::vector<FoundValue>& found, const Recipe& recipe, Mistakes& mistakes) {
  for (const auto& value : found) {
    if (section_of(value.key) != "sync") {
      continue;
    }
    if (const auto objection = sync_objection(value.key, recipe); !objection.empty()) {
      mistakes.push_back(
          fmt::format("{} is {} ({}), {}", value.key, value.shown, value.where, objection));
    }
  }
}

}  // namespace strait::recipe
