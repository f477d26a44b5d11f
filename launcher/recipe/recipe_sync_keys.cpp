#include "launcher/recipe/recipe_sync_keys.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "framework/sync/methods.h"
#include "launcher/recipe/recipe_key_kinds.h"
#include "launcher/recipe/recipe_number_keys.h"

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

// What a plugin's method reads is not known before the plugin is loaded: it may be anything.
bool reads(std::string_view method, std::string_view key) {
  const bool of_a_plugin = method != kAutomaticSync && sync::methods().find(method) == nullptr;
  return of_a_plugin || std::ranges::count(keys_read_by(method), key) > 0;
}

template <auto Member>
constexpr auto in_sync() {
  return [](auto& recipe) -> auto& { return recipe.sync.*Member; };
}

// As a key of [sync]: called by its full name, helped by whose it is, there where it is read and
// anything at all is said of sync.
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

}  // namespace

std::vector<RecipeKey> sync_keys() {
  using S = Recipe::Sync;
  using key_kinds::integer;
  using key_kinds::number;
  using key_kinds::word;
  std::vector<RecipeKey> keys = {
      word("wire_dtype", in_sync<&S::wire_dtype>(), "of what is sent; sums are float32"),
      number("random", in_sync<&S::random>(), {1e-6, 1},
             "the share of the weights that a round looks at; auto: 0.1, or what sync.method "
             "\"auto\" chooses",
             kAuthors),
      number("top", in_sync<&S::top>(), {1e-6, 1},
             "the share of these that is sent, largest first; auto: 0.2, or likewise", kAuthors),
      integer("bits", in_sync<&S::bits>(), {1, 8},
              "of a value that is sent; auto: 4, or likewise", kAuthors),
      word("reference_dtype", in_sync<&S::reference_dtype>(),
           "of the agreed weights and of what is still owed"),
      integer("every", in_sync<&S::every>(), {1, kManyUpdates}, "updates between two rounds",
              kAuthors),
      integer("fragments", in_sync<&S::fragments>(), {1, 1024},
              "parts of the model that take turns"),
      integer(
          "late", in_sync<&S::late>(), {0, kManyUpdates},
          "updates until a result lands; from 2 on, a checkpoint or an evaluation lands it early"),
      number("blend", in_sync<&S::blend>(), {0, 1}, "the share of the own weights that stays"),
      number("outer_learning_rate", in_sync<&S::outer_learning_rate>(), {1e-6, 10},
             "of the step from one agreement to the next", kAuthors),
      number("outer_momentum", in_sync<&S::outer_momentum>(), {0, 0.999999}, "of these steps",
             kAuthors),
      integer("rank", in_sync<&S::rank>(), {1, 1024}, "of the matrices that are sent"),
      integer("warmup", in_sync<&S::warmup>(), {1, 1'000'000'000},
              "steps with exact means before the second moment is frozen", kAuthors)};
  std::ranges::transform(keys, keys.begin(), of_methods);
  keys.insert(keys.begin(),
              word("sync.on_loss", in_sync<&S::on_loss>(),
                   "what is done when a replica's process or host is lost: the run ends, or the "
                   "other replicas go on with the rows that are theirs"));
  keys.front().get = [get = std::move(keys.front().get)](const Recipe& recipe) {
    return recipe.sync == Recipe::Sync() ? RecipeValue() : get(recipe);
  };
  keys.insert(keys.begin(),
              key_kinds::part("sync.method", in_sync<&S::method>(), PartKind::sync_method,
                              "how the replicas of a stage agree on weights; auto: the freshest "
                              "that costs no time",
                              {kAutomaticSync}));
  return keys;
}

std::string sync_method_of(const Recipe& recipe) {
  if (recipe.pipeline.replicas == 1) {
    return "";
  }
  return recipe.sync.method.empty() ? kUsualSync : recipe.sync.method;
}

std::vector<std::string> keys_read_by(std::string_view method) {
  if (method == kAutomaticSync) return {"random", "top", "bits"};
  const sync::MethodOffer* const offer = sync::methods().find(method);
  return offer == nullptr ? std::vector<std::string>() : offer->reads;
}

std::string sync_objection(std::string_view key, const Recipe& recipe) {
  const std::string method = sync_method_of(recipe);
  if (method.empty()) {
    return "but pipeline.replicas is 1: there is nobody to agree with; leave [sync] out, or ask "
           "for more replicas";
  }
  if (key == "sync.method" || key == "sync.on_loss" || reads(method, last_part_of(key))) {
    return "";
  }
  const auto known = keys_read_by(method);
  return fmt::format("but sync.method \"{}\" does not read it; {}", method,
                     known.empty() ? std::string("it has no settings")
                                   : fmt::format("it reads {}", fmt::join(known, ", ")));
}

}  // namespace strait::recipe
