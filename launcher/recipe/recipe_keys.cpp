#include "launcher/recipe/recipe_keys.h"

#include <fmt/ranges.h>

#include <atomic>
#include <iterator>

#include "launcher/recipe/key_kinds.h"
#include "launcher/recipe/number_keys.h"

namespace strait::recipe {

namespace {

using key_kinds::choice;
using key_kinds::flag;
using key_kinds::integer;
using key_kinds::number;
using key_kinds::part;
using key_kinds::text;
using key_kinds::text_list;
using key_kinds::written_if_set;
constexpr std::int64_t kMany = 1'000'000'000;
constexpr const char* kCommand = "a command of a shell";

// A member of a section.
template <auto Part, auto Member>
constexpr auto at() {
  return [](auto& recipe) -> auto& { return recipe.*Part.*Member; };
}

template <auto Member>
constexpr auto top() {
  return [](auto& recipe) -> auto& { return recipe.*Member; };
}

using R = Recipe;

template <auto Member>
constexpr auto in_preference() {
  return [](auto& recipe) -> auto& { return recipe.train.preference.*Member; };
}

template <auto Member>
constexpr auto in_stop_when() {
  return [](auto& recipe) -> auto& { return recipe.train.stop_when.*Member; };
}

// With "auto" as a further value, which sets `chosen`.
template <class Flag>
RecipeKey or_chosen(RecipeKey key, Flag chosen) {
  key.allowed += " or \"auto\"";
  if (!key.choices.empty()) key.choices.emplace_back("auto");
  key.set = [set = std::move(key.set), chosen](const RecipeValue& value, Recipe& recipe) {
    chosen(recipe) = value == "auto";
    return value == "auto" || set(value, recipe);
  };
  key.get = [get = std::move(key.get), chosen](const Recipe& recipe) {
    return chosen(recipe) ? RecipeValue("auto") : get(recipe);
  };
  return key;
}

void add_model_and_data(std::vector<RecipeKey>& keys) {
  const std::string path = "a path";
  keys.insert(
      keys.end(),
      {
          special_keys::run_name(),
          integer("seed", top<&R::seed>(), {0, std::numeric_limits<std::int64_t>::max()},
                  "of everything random"),
          text_list("plugins", top<&R::plugins>(), "a list of paths such as [\"libmine.so\"]",
                    "shared objects with further schedules, models, codecs or sync methods"),
          text("model.path", at<&R::model, &R::Model::path>(), path,
               "a Hugging Face directory; config.json is enough when weights = \"random\""),
          special_keys::weights(),
          choice("model.dtype", at<&R::model, &R::Model::dtype>(),
                 "of parameters and arithmetic; bfloat16 keeps float32 masters"),
          choice("model.device", at<&R::model, &R::Model::device>(),
                 "auto: a GPU where there is one that this build computes on"),
          or_chosen(choice("model.recompute", at<&R::model, &R::Model::recompute>(),
                           "layer: keep only the inputs of layers, and recompute the rest; "
                           "offload: GPUs keep activations of waiting micro-batches in host "
                           "memory, and recompute nothing; auto: where a step is shorter so"),
                    at<&R::model, &R::Model::choose_recompute>()),
          text("model.adapter", at<&R::model, &R::Model::adapter>(), path,
               "a PEFT directory to start from"),
          written_if_set(
              choice("model.quantization", at<&R::model, &R::Model::quantization>(),
                     "bits of the matrices that adapters leave as they are: QLoRA; absent: none")),
      });
  std::ranges::move(lora_keys(), std::back_inserter(keys));
  std::ranges::move(data_keys(), std::back_inserter(keys));
}

void add_pipeline(std::vector<RecipeKey>& keys) {
  keys.insert(
      keys.end(),
      {or_chosen(integer("pipeline.stages", at<&R::pipeline, &R::Pipeline::stages>(), {1, 64},
                         "processes that the model is split over; auto, and where hosts are listed "
                         "also absent: chosen for the shortest step, with their hosts and layers"),
                 at<&R::pipeline, &R::Pipeline::choose_stages>()),
       or_chosen(integer("pipeline.replicas", at<&R::pipeline, &R::Pipeline::replicas>(), {1, 256},
                         "copies of the whole pipeline; auto: chosen with the stages"),
                 at<&R::pipeline, &R::Pipeline::choose_replicas>()),
       text_list("pipeline.hosts", at<&R::pipeline, &R::Pipeline::hosts>(),
                 "a list of names of hosts.list such as [\"b\", \"a\"]",
                 "of the processes, by replica, then by stage; absent: in the order of hosts.list"),
       or_chosen(
           part("pipeline.schedule", at<&R::pipeline, &R::Pipeline::schedule>(), PartKind::schedule,
                "in which order a stage runs forwards, backwards and weight gradients; auto: the "
                "fastest of this build's",
                {"auto"}),
           at<&R::pipeline, &R::Pipeline::choose_schedule>()),
       integer("pipeline.chunks", at<&R::pipeline, &R::Pipeline::chunks>(), {1, 64},
               "of the model on every stage; auto: 2 where the schedule is interleaved, else 1",
               "auto"),
       integer("pipeline.depth", at<&R::pipeline, &R::Pipeline::depth>(), {0, 16},
               "forwards in flight beyond plain 1F1B, per hop", "auto"),
       integer("pipeline.slices", at<&R::pipeline, &R::Pipeline::slices>(), {1, 64},
               "parts of its rows in which a micro-batch crosses and is computed; auto: chosen for "
               "the shortest step",
               "auto"),
       special_keys::partition(), special_keys::rows(),
       integer("pipeline.threads", at<&R::pipeline, &R::Pipeline::threads>(), {1, 1024},
               "per process, no more than its host has cores; auto divides these", "auto"),
       written_if_set(flag("pipeline.replan", at<&R::pipeline, &R::Pipeline::replan>(),
                           "true: at a checkpoint the run takes another layout if its measured "
                           "speeds say that this saves more than it costs; absent: false"))});
}

void add_train(std::vector<RecipeKey>& keys) {
  keys.insert(
      keys.end(),
      {integer("train.steps", at<&R::train, &R::Train::steps>(), {1, kMany}, "updates to make"),
       integer("train.epochs", at<&R::train, &R::Train::epochs>(), {1, 1'000'000},
               "passes over the data, instead of steps"),
       integer("train.batch", at<&R::train, &R::Train::batch>(), {1, 1 << 20},
               "rows per step, all replicas together"),
       integer("train.micro_batch", at<&R::train, &R::Train::micro_batch>(), {1, 1 << 16},
               "sequences of one forward; auto: the fewest with which a step is at most 5 % longer "
               "than the shortest",
               "auto"),
       number("train.learning_rate", at<&R::train, &R::Train::learning_rate>(), {0, 10},
              "at the end of the warm-up"),
       choice("train.decay", at<&R::train, &R::Train::decay>(),
              "of the learning rate after warm-up"),
       written_if_set(number("train.min_rate", at<&R::train, &R::Train::min_rate>(), {0, 10},
                             "learning rate that cosine and linear decays end at; absent: 0")),
       integer("train.warmup", at<&R::train, &R::Train::warmup>(), {0, kMany},
               "steps until the learning rate is reached"),
       special_keys::betas(),
       written_if_set(choice("train.optimizer", at<&R::train, &R::Train::optimizer>(),
                             "muon: of the matrices of blocks, and AdamW of the rest; absent: "
                             "adamw")),
       or_chosen(choice("train.moments", at<&R::train, &R::Train::moments>(),
                        "of AdamW: 8, 4 or 2 bytes a parameter; auto: the most that fit"),
                 at<&R::train, &R::Train::choose_moments>()),
       written_if_set(
           or_chosen(choice("train.offload", at<&R::train, &R::Train::offload>(),
                            "optimizer: of stages on GPUs, masters and moments are in host memory, "
                            "and the CPU makes the update; disk: they are in a file of the run's "
                            "directory, also of stages on CPUs; auto: if nothing else fits; "
                            "absent: none"),
                     at<&R::train, &R::Train::choose_offload>())),
       number("train.weight_decay", at<&R::train, &R::Train::weight_decay>(), {0, 10},
              "on parameters of two or more dimensions"),
       number("train.clip", at<&R::train, &R::Train::clip>(), {0, 1e6},
              "the largest global gradient norm; 0 is off"),
       key_kinds::by_pattern(
           "train.rates", at<&R::train, &R::Train::rates>(), key_kinds::NumberRange{0, 1000},
           "factors of the learning rate of parameters whose whole names match; absent: 1"),
       written_if_set(number("train.neftune", at<&R::train, &R::Train::neftune>(), {0, 1000},
                             "alpha of NEFTune's noise on token embeddings; absent: 0, none")),
       integer("train.eval_every", at<&R::train, &R::Train::eval_every>(), {0, kMany},
               "steps; 0 is only at the end, when there is data to evaluate")});
}

void add_stop_when(std::vector<RecipeKey>& keys) {
  keys.insert(
      keys.end(),
      {written_if_set(integer(
           "train.stop_when.no_better", in_stop_when<&trace::EarlyStop::Rule::no_better>(),
           {0, 1'000'000},
           "patience: the run saves and ends after this number of evaluations in a row without a "
           "better loss; absent: 0, never")),
       written_if_set(
           number("train.stop_when.min_delta", in_stop_when<&trace::EarlyStop::Rule::min_delta>(),
                  {0, 1000},
                  "a loss is better if it is lower than the best by more than this; absent: 0"))});
}

void add_preference(std::vector<RecipeKey>& keys) {
  using Settings = PreferenceSettings;
  keys.insert(
      keys.end(),
      {written_if_set(
           choice("train.preference.loss", in_preference<&Settings::loss>(),
                  "what is learnt from pairs of answers, a chosen and a rejected one; of kto from "
                  "answers that are rated; absent: none")),
       number("train.preference.beta", in_preference<&Settings::beta>(), {1e-6, 1000},
              "of these losses; absent: 0.1, of simpo 2"),
       written_if_set(number("train.preference.margin", in_preference<&Settings::margin>(),
                             {0, 1000},
                             "of simpo, by which chosen answers are to be better; absent: 0.5")),
       text("train.preference.reference", in_preference<&Settings::reference>(), "a path",
            "a Hugging Face directory of the model that dpo and kto compare with; absent: "
            "the model that training begins with, and with adapters the model without them"),
       written_if_set(number("train.preference.desirable_weight",
                             in_preference<&Settings::desirable_weight>(), {0, 1000},
                             "of kto, of the loss of desirable answers; absent: 1")),
       written_if_set(number("train.preference.undesirable_weight",
                             in_preference<&Settings::undesirable_weight>(), {0, 1000},
                             "of kto, of the loss of undesirable answers; absent: 1"))});
}

void add_wire(std::vector<RecipeKey>& keys) {
  keys.insert(keys.end(),
              {written_if_set(special_keys::budget()),
               part("codec.forward", at<&R::codec, &R::Codec::forward>(), PartKind::codec,
                    "how activations are sent"),
               integer("codec.forward_bits", at<&R::codec, &R::Codec::forward_bits>(), {2, 8},
                       "of fixed and delta; of transform the error; of auto the least"),
               special_keys::first_bits(),
               part("codec.backward", at<&R::codec, &R::Codec::backward>(), PartKind::codec,
                    "how gradients are sent"),
               integer("codec.backward_bits", at<&R::codec, &R::Codec::backward_bits>(), {2, 8},
                       "of fixed and delta; of transform the error; of auto the least"),
               choice("codec.wire_dtype", at<&R::codec, &R::Codec::wire_dtype>(), "of raw"),
               special_keys::group(), special_keys::cache(), special_keys::cache_disk()});
  std::ranges::move(sync_keys(), std::back_inserter(keys));
}

void add_state_and_hosts(std::vector<RecipeKey>& keys) {
  keys.insert(
      keys.end(),
      {integer("checkpoint.every", at<&R::checkpoint, &R::Checkpoint::every>(), {0, kMany},
               "steps; 0 is only at the end"),
       integer("checkpoint.keep", at<&R::checkpoint, &R::Checkpoint::keep>(), {2, 1'000'000},
               "complete checkpoints that stay"),
       special_keys::keep_best(),
       written_if_set(
           choice("checkpoint.home", at<&R::checkpoint, &R::Checkpoint::home>(),
                  "what comes from hosts to this machine; auto: all, but behind the last step only "
                  "the weights are waited for; weights: never more; none: all stays there")),
       written_if_set(special_keys::checkpoint_memory()),
       written_if_set(
           integer("checkpoint.memory_every", at<&R::checkpoint, &R::Checkpoint::memory_every>(),
                   {0, kMany},
                   "steps between checkpoints in memory only, each stage's on its host and on a "
                   "neighbour, so that losing a host costs at most so many steps; absent: 0, "
                   "none")),
       text("on.end", at<&R::on, &R::Hooks::end>(), kCommand,
            "run by the launcher when the run has ended, however it did (docs/runs.md#commands)"),
       text("on.failure", at<&R::on, &R::Hooks::failure>(), kCommand,
            "the same before it, when the exit code is neither 0 nor 130"),
       text("on.checkpoint", at<&R::on, &R::Hooks::checkpoint>(), kCommand,
            "run after a checkpoint, during training: one at a time, the newest next")});
  std::ranges::move(host_keys(), std::back_inserter(keys));
  std::ranges::move(simulate_keys(), std::back_inserter(keys));
}

std::atomic<std::vector<std::string> (*)(PartKind)> part_name_source = nullptr;

}  // namespace

const std::vector<RecipeKey>& recipe_keys() {
  static const std::vector<RecipeKey> kKeys = [] {
    std::vector<RecipeKey> all;
    add_model_and_data(all);
    add_pipeline(all);
    add_train(all);
    add_stop_when(all);
    add_preference(all);
    add_wire(all);
    add_state_and_hosts(all);
    return all;
  }();
  return kKeys;
}

std::string allowed_by(const RecipeKey& key) {
  return key.names ? fmt::format("one of \"{}\"", fmt::join(key.names(), "\", \"")) : key.allowed;
}

const RecipeKey* find_recipe_key(std::string_view name) {
  const auto found = std::ranges::find(recipe_keys(), name, &RecipeKey::name);
  return found == recipe_keys().end() ? nullptr : &*found;
}

bool is_recipe_section(std::string_view name) {
  return name.empty() || std::ranges::any_of(recipe_keys(), [&](const RecipeKey& key) {
           return key.name.size() > name.size() && key.name.starts_with(name) &&
                  key.name[name.size()] == '.';
         });
}

std::string_view section_of(std::string_view name) {
  const auto dot = name.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : name.substr(0, dot);
}

std::string_view last_part_of(std::string_view name) { return name.substr(name.rfind('.') + 1); }

std::vector<std::string> part_names(PartKind kind) {
  const auto source = part_name_source.load();
  return source == nullptr ? std::vector<std::string>{} : source(kind);
}

void set_part_names(std::vector<std::string> (*source)(PartKind)) { part_name_source = source; }

}  // namespace strait::recipe
