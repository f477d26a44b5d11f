#include "launcher/recipe/recipe_sync_keys.h"

#include "framework/sync/methods.h"
#include "launcher/recipe/key_kinds.h"
#include "launcher/recipe/number_keys.h"
#include "launcher/recipe/recipe_keys.h"

namespace strait::recipe {

namespace {

constexpr std::int64_t kManyUpdates = 1'000'000;
constexpr std::string_view kAuthors = "auto";  // what the method's authors use

std::vector<std::string> methods_that_read(std::string_view key) {
  std::vector<std::string> names;
  for (const sync::MethodOffer& method : sync::methods().all()) {
    if (std::ranges::find(method.reads, key) != method.reads.end()) names.push_back(method.name);
  }
  return names;
}

// Which keys the method of a plugin reads is unknown until the plugin is loaded: any key is
// allowed.
bool reads(std::string_view method, std::string_view key) {
  const bool of_a_plugin = method != kAutomaticSync && sync::methods().find(method) == nullptr;
  return of_a_plugin || std::ranges::count(keys_read_by(method), key) > 0;
}

template <auto Member>
constexpr auto in_sync() {
  return [](auto& recipe) -> auto& { return recipe.sync.*Member; };
}

// A key of [sync]: its full name, a help text with the methods that read it, and a value only where
// the recipe's method reads it and anything in [sync] is set.
RecipeKey of_methods(RecipeKey key) {
  const std::string last = key.name;
  key.name = "sync." + last;
  key.help = fmt::format("{}: {}", fmt::join(methods_that_read(last), ", "), key.help);
  key.get = [last, get = std::move(key.get)](const Recipe& recipe) {
    const bool there = recipe.sync != Recipe::Sync() && reads(sync_method_of(recipe), last);
    return there ? get(recipe) : RecipeValue();
  };
  return key;
}

RecipeKey of_all_methods(RecipeKey key) {
  key.get = [get = std::move(key.get)](const Recipe& recipe) {
    return recipe.sync == Recipe::Sync() ? RecipeValue() : get(recipe);
  };
  return key;
}

}  // namespace

std::vector<RecipeKey> sync_keys() {
  using S = Recipe::Sync;
  using key_kinds::choice;
  using key_kinds::integer;
  using key_kinds::number;
  std::vector<RecipeKey> keys = {
      choice("wire_dtype", in_sync<&S::wire_dtype>(), "of what is sent; sums are float32"),
      number("random", in_sync<&S::random>(), {1e-6, 1},
             "the share of the weights that a round considers; auto: 0.1, or what sync.method "
             "\"auto\" chooses",
             kAuthors),
      number("top", in_sync<&S::top>(), {1e-6, 1},
             "the share of these that is sent, largest first; auto: 0.2, or likewise", kAuthors),
      integer("bits", in_sync<&S::bits>(), {1, 8}, "of a value that is sent; auto: 4, or likewise",
              kAuthors),
      integer("every", in_sync<&S::every>(), {1, kManyUpdates}, "updates between two rounds",
              kAuthors),
      integer("fragments", in_sync<&S::fragments>(), {1, 1024},
              "parts of the model that take turns"),
      integer("late", in_sync<&S::late>(), {0, kManyUpdates},
              "updates until a result is applied; from 2 on, checkpoints and evaluations apply it "
              "early"),
      number("outer_learning_rate", in_sync<&S::outer_learning_rate>(), {1e-6, 10},
             "of the step from one agreement to the next", kAuthors),
      number("outer_momentum", in_sync<&S::outer_momentum>(), {0, 0.999999}, "of these steps",
             kAuthors),
      integer("rank", in_sync<&S::rank>(), {1, 1024}, "of the matrices that are sent")};
  std::ranges::transform(keys, keys.begin(), of_methods);
  keys.insert(
      keys.begin(),
      key_kinds::written_if_set(key_kinds::flag(
          "sync.share_state", in_sync<&S::share_state>(),
          "whether replicas that sum in shared memory divide the optimizer's moments among "
          "them: each holds and updates a part, and all gather the weights; absent: false")));
  keys.insert(keys.begin(),
              of_all_methods(choice(
                  "sync.group", in_sync<&S::group>(),
                  "whether replicas that share a host sum their gradients without links, and the "
                  "method runs between hosts; auto: where it runs between hosts, and allreduce "
                  "between GPUs; always: also on one host, allreduce also by NCCL between hosts")));
  keys.insert(keys.begin(),
              of_all_methods(choice("sync.on_loss", in_sync<&S::on_loss>(),
                                    "when a process or host of a replica is lost: the run stops, "
                                    "or the other replicas continue with their own sequences")));
  keys.insert(keys.begin(),
              key_kinds::part("sync.method", in_sync<&S::method>(), PartKind::sync_method,
                              "how the replicas of a stage agree on weights; auto: of those that "
                              "hide behind compute, the one that costs least loss",
                              {kAutomaticSync}));
  return keys;
}

std::string sync_method_of(const Recipe& recipe) {
  if (recipe.pipeline.replicas == 1 && !recipe.pipeline.choose_replicas) {
    return "";
  }
  return recipe.sync.method.empty() ? kDefaultSync : recipe.sync.method;
}

std::vector<std::string> keys_read_by(std::string_view method) {
  if (method == kAutomaticSync) return {"random", "top", "bits"};
  const sync::MethodOffer* const offer = sync::methods().find(method);
  return offer == nullptr ? std::vector<std::string>() : offer->reads;
}

std::string sync_objection(std::string_view key, const Recipe& recipe) {
  const std::string method = sync_method_of(recipe);
  if (method.empty()) {
    return "but pipeline.replicas is 1: there is nothing to synchronise; leave [sync] out, or set "
           "more replicas";
  }
  const bool of_all = key == "sync.method" || key == "sync.on_loss" || key == "sync.group" ||
                      key == "sync.share_state";
  if (of_all || reads(method, last_part_of(key))) {
    return "";
  }
  const auto known = keys_read_by(method);
  return fmt::format("but sync.method \"{}\" does not read it; {}", method,
                     known.empty() ? std::string("it has no settings")
                                   : fmt::format("it reads {}", fmt::join(known, ", ")));
}

}  // namespace strait::recipe
