#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "framework/sync/methods.h"
#include "launcher/base/errors.h"
#include "launcher/recipe/recipe_io.h"
#include "launcher/recipe/recipe_keys.h"
#include "launcher/recipe/recipe_sync_keys.h"

namespace strait::recipe {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : generator_(seed) {}
  std::int64_t integer(std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(generator_);
  }
  double number(double most) { return std::uniform_real_distribution<double>(0, most)(generator_); }
  bool coin() { return integer(0, 1) == 1; }
  template <class Word>
  Word word() {
    return static_cast<Word>(integer(0, std::ssize(all_names(Word{})) - 1));
  }
  std::string one_of(const std::vector<std::string>& words) {
    return words[static_cast<std::size_t>(integer(0, std::ssize(words) - 1))];
  }
  std::string text() {
    static const std::vector<std::string> kPieces = {"a", "/", "\"", "\\", " ", "#",
                                                     "é", "=", "'",  "€",  "]", "x.y"};
    std::string text;
    for (auto i = integer(1, 12); i > 0; --i) {
      text += kPieces[static_cast<std::size_t>(integer(0, std::ssize(kPieces) - 1))];
    }
    return text;
  }

 private:
  std::mt19937_64 generator_;
};

// A method that reads all of these does not exist: what the drawn one does not read stays.
Recipe::Sync random_sync(Draw& draw) {
  Recipe::Sync sync;
  auto names = sync::method_names();
  names.emplace_back(kAutomaticSync);
  const auto drawn = static_cast<std::size_t>(draw.integer(0, std::ssize(names)));
  if (drawn < names.size()) sync.method = names[drawn];
  for (const auto& key : keys_read_by(sync.method.empty() ? kDefaultSync : sync.method)) {
    if (key == "wire_dtype") sync.wire_dtype = draw.word<Dtype>();
    if (key == "random" && draw.coin()) sync.random = 1e-6 + draw.number(0.9);
    if (key == "top" && draw.coin()) sync.top = 1;
    if (key == "bits" && draw.coin()) sync.bits = draw.integer(1, 8);
    if (key == "every" && draw.coin()) sync.every = draw.integer(1, 1000);
    if (key == "fragments") sync.fragments = draw.integer(1, 9);
    if (key == "late") sync.late = draw.integer(0, 9);
    if (key == "outer_learning_rate" && draw.coin())
      sync.outer_learning_rate = 0.01 + draw.number(2);
    if (key == "outer_momentum" && draw.coin()) sync.outer_momentum = draw.number(0.99);
    if (key == "rank") sync.rank = draw.integer(1, 64);
  }
  return sync;
}

Recipe::Hosts random_hosts(Draw& draw) {
  Recipe::Hosts hosts;
  hosts.backend = draw.word<BackendKind>();
  if (draw.coin()) hosts.restart = draw.integer(0, 1000);
  if (hosts.backend == BackendKind::local) {
    using std::chrono::nanoseconds;
    net::PathConditions& path = hosts.simulate;
    path.bits_per_second = draw.integer(1'000, 100'000'000'000);
    path.delay = nanoseconds(draw.integer(1, 10'000'000'000));
    path.loss = draw.number(0.5);
    path.cut_every = nanoseconds(draw.integer(100'000'000, 100'000'000'000));
    path.cut_for = nanoseconds(draw.integer(1, 10'000'000'000));
    return hosts;
  }
  hosts.spare = {RecipeHost{.name = "x"}, RecipeHost{.name = "y", .directory = draw.text()}};
  hosts.list = {RecipeHost{.name = "a"},
                RecipeHost{.name = "b@b",
                           .slots = draw.integer(0, 9),
                           .memory = draw.integer(1, 1 << 20) << 20U,
                           .directory = draw.text(),
                           .environment = {{"A", draw.text()}, {"B_1", draw.text()}},
                           .price = draw.number(10),
                           .uplink_megabits = 1 + draw.number(100),
                           .up_megabits = 1 + draw.number(100)}};
  hosts.address = draw.text();
  hosts.hold = draw.integer(1, 1000);
  hosts.ports = kHostPorts;
  hosts.link_megabits = 1 + draw.number(1000);
  return hosts;
}

Recipe::Lora random_lora(Draw& draw) {
  Recipe::Lora lora;
  lora.rank = draw.integer(1, 65536);
  lora.alpha = draw.number(1e6);
  lora.dropout = draw.number(0.99);
  lora.rslora = draw.coin();
  lora.dora = draw.coin();
  if (draw.coin()) lora.targets = {draw.text(), draw.text()};
  if (lora.targets.empty() && draw.coin()) lora.pattern = R"(.*\.(q|v)_proj)";
  if (draw.coin()) lora.rank_pattern = {{"q_proj", 4}, {R"(layers\.[01]\.k_proj)", 2}};
  if (draw.coin()) lora.alpha_pattern = {{"^v", draw.number(1e6)}};
  if (draw.coin()) lora.layers = {draw.integer(0, 100), draw.integer(0, 100)};
  if (draw.coin()) lora.modules_to_save = {draw.text()};
  if (draw.coin()) lora.target_parameters = {draw.text()};
  return lora;
}

std::vector<data::DataFile> random_files(Draw& draw) {
  std::vector<data::DataFile> files;
  for (auto i = draw.integer(1, 3); i > 0; --i) {
    files.push_back({std::to_string(i) + draw.text(), draw.coin() ? 1 : 0.1 + draw.number(9)});
  }
  return files;
}

Recipe::Model random_model(Draw& draw) {
  Recipe::Model model;
  model.path = draw.text();
  model.weights = draw.word<Weights>();
  model.dtype = draw.word<Dtype>();
  model.device = draw.word<Device>();
  model.recompute = draw.word<Recompute>();
  if (model.recompute == Recompute::none) model.choose_recompute = draw.coin();
  if (draw.coin()) model.adapter = draw.text();
  if (model.weights == Weights::run) model.weights_run = "runs/" + draw.text();
  if (draw.coin()) model.lora = random_lora(draw);
  if (model.lora) model.quantization = draw.word<Quantization>();
  return model;
}

// Any recipe that the reader can return.
// With what the loss goes with.
void add_preference(Draw& draw, Recipe& recipe) {
  PreferenceSettings& preference = recipe.train.preference;
  preference.loss = draw.word<PreferenceKind>();
  if (preference.loss == PreferenceKind::none) return;
  recipe.data.targets = data::Targets::assistant;
  recipe.data.too_long = draw.coin() ? data::TooLong::refuse : data::TooLong::drop;
  if (draw.coin()) preference.beta = 0.001 + draw.number(10);
  if (preference.loss == PreferenceKind::simpo) preference.margin = draw.number(9);
  if (preference.loss == PreferenceKind::kto) preference.desirable_weight = draw.number(9);
  if (preference.loss == PreferenceKind::kto) preference.undesirable_weight = draw.number(9);
  if (!has_reference(preference.loss)) return;
  if (!recipe.model.lora) recipe.model.lora.emplace();
  recipe.model.lora->modules_to_save.clear();
}

void add_by_evaluation(Draw& draw, Recipe& recipe) {
  Recipe::Train& train = recipe.train;
  if (train.eval_every == 0 || draw.coin()) return;
  recipe.checkpoint.every = train.eval_every * draw.integer(1, 9);
  recipe.checkpoint.keep_best = draw.integer(1, 9);
  const bool all_stay = recipe.sync.on_loss == LossRule::stop;
  if (all_stay) train.stop_when = {draw.integer(1, 9), draw.number(1)};
}

Recipe random_recipe(Draw& draw) {
  Recipe r;
  r.name = "run-" + std::to_string(draw.integer(0, 99));
  r.seed = draw.integer(0, std::numeric_limits<std::int64_t>::max());
  r.model = random_model(draw);
  if (draw.coin()) r.plugins = {draw.text(), draw.text()};
  r.data = {random_files(draw),
            {},
            0,
            draw.text(),
            draw.word<ChatTemplate>(),
            draw.integer(2, 4096),
            draw.coin(),
            draw.word<data::Targets>(),
            draw.word<data::TooLong>(),
            draw.word<data::Packing>(),
            draw.integer(0, 1)};
  if (draw.coin()) {
    r.data.eval = random_files(draw);
  } else {
    r.data.hold_out = 0.001 + draw.number(0.9);
  }
  r.pipeline.stages = draw.integer(1, 64);
  r.pipeline.replicas = draw.integer(1, 8);
  r.pipeline.schedule = draw.one_of({"gpipe", "1f1b", "interleaved", "zero_bubble"});
  if (r.pipeline.schedule == "1f1b") r.pipeline.choose_schedule = draw.coin();
  r.pipeline.chunks = draw.coin() ? std::optional(draw.integer(1, 8)) : std::nullopt;
  r.pipeline.depth = draw.coin() ? std::optional(draw.integer(0, 16)) : std::nullopt;
  if (draw.coin()) r.pipeline.slices.reset();
  r.pipeline.threads = draw.coin() ? std::optional(draw.integer(1, 64)) : std::nullopt;
  auto& partition = r.pipeline.partition;
  partition.kind = draw.word<PartitionKind>();
  if (partition.kind == PartitionKind::plugin) partition.plugin = draw.text();
  if (partition.kind == PartitionKind::ranges) {
    for (int s = 0; s < r.pipeline.stages * r.pipeline.chunks.value_or(1); ++s) {
      partition.ranges.emplace_back(2 * s, 2 * s + 1);
    }
  }
  auto& train = r.train;
  (draw.coin() ? train.steps : train.epochs) = draw.integer(1, 1000);
  train.micro_batch = draw.coin() ? std::optional(draw.integer(1, 9)) : std::nullopt;
  train.batch = draw.integer(1, 9) * r.pipeline.replicas * train.micro_batch.value_or(1);
  train.learning_rate = draw.number(10);
  train.decay = draw.word<DecayKind>();
  train.min_rate = draw.number(train.learning_rate);
  train.neftune = draw.number(1000);
  if (draw.coin()) train.rates = {{R"(.*\.lora_B\.weight)", draw.number(16)}, {"wte.*", 0.0}};
  add_preference(draw, r);
  train.warmup = draw.integer(0, 1000);
  train.betas = {draw.number(0.999), draw.number(0.999)};
  train.weight_decay = draw.number(1e-9);
  train.clip = draw.number(1e6);
  train.eval_every = draw.integer(0, 50);
  r.codec = {draw.one_of(part_names(PartKind::codec)),
             draw.integer(2, 8),
             draw.coin() ? 16 : draw.integer(2, 8),
             draw.one_of(part_names(PartKind::codec)),
             draw.integer(2, 8),
             draw.word<codec::WireDtype>(),
             std::int64_t{32} << draw.integer(0, 2),
             draw.integer(1, 1 << 20) << draw.integer(0, 20),
             draw.integer(0, 1 << 20) << draw.integer(0, 20)};
  if (r.pipeline.replicas > 1) r.sync = random_sync(draw);
  r.checkpoint = {draw.integer(0, 1000), draw.integer(2, 10), 0, draw.word<CheckpointHome>(),
                  draw.integer(0, 1 << 20) << draw.integer(0, 20)};
  add_by_evaluation(draw, r);
  if (draw.coin()) r.on = {draw.text(), draw.text(), draw.text()};
  r.hosts = random_hosts(draw);
  return r;
}

TEST(RecipeWriter, ReadsBackEqualInBothForms) {
  constexpr std::uint64_t kSeed = 20240229;
  Draw draw(kSeed);
  for (int i = 0; i < 300; ++i) {
    const Recipe recipe = random_recipe(draw);
    const std::string toml = recipe_to_toml(recipe);
    ASSERT_EQ(parse_recipe(toml, "run/recipe.toml"), recipe)
        << "seed " << kSeed << ", case " << i << "\n"
        << toml;
    const auto json = Json::parse(recipe_to_json(recipe).dump());
    ASSERT_EQ(recipe_from_json(json, "plan.json"), recipe) << "seed " << kSeed << ", case " << i;
  }
}

TEST(RecipeWriter, RefusesJsonThatIsNotARecipe) {
  EXPECT_THAT([] { recipe_from_json(Json(3), "plan.json"); },
              testing::ThrowsMessage<base::UserError>(HasSubstr("plan.json holds no recipe")));
  EXPECT_THAT(
      [] {
        recipe_from_json(Json{{"trian", Json::object()}, {"model", {{"path", 3}}}}, "plan.json");
      },
      testing::ThrowsMessage<base::UserError>(
          testing::AllOf(HasSubstr("unknown table trian (plan.json); did you mean train?"),
                         HasSubstr("model.path is 3 (plan.json)"))));
}

TEST(RecipeKeys, AllowsEveryDefault) {
  const Recipe defaults;
  for (const auto& key : recipe_keys()) {
    Recipe recipe;
    const auto value = key.get(defaults);
    EXPECT_TRUE(value.is_null() || key.set(value, recipe)) << key.name << " = " << value.dump();
    EXPECT_EQ(recipe, defaults) << key.name;
  }
}

TEST(RecipeKeys, RefusesNullAndLeavesRecipeUnchanged) {
  for (const auto& key : recipe_keys()) {
    Recipe recipe;
    EXPECT_FALSE(key.set(Json(), recipe)) << key.name;
    EXPECT_FALSE(key.set(Json("\x01"), recipe)) << key.name;
    EXPECT_EQ(recipe, Recipe()) << key.name;
  }
}

TEST(RecipeWriter, ReferenceListsEveryKeyWithAllowedValues) {
  const std::string page = recipe_reference();
  for (const auto& key : recipe_keys()) {
    EXPECT_THAT(page, HasSubstr(std::string(last_part_of(key.name))));
    EXPECT_THAT(page, HasSubstr(allowed_by(key))) << key.name;
    EXPECT_THAT(page, HasSubstr(key.help)) << key.name;
  }
}

TEST(RecipeWriter, ReferenceSetsNothing) {
  const std::vector<std::string> needed = {"model.path=m", "data.train=t", "train.steps=1"};
  const std::string page = recipe_reference();
  EXPECT_EQ(parse_recipe(page, "all.toml", needed), parse_recipe("", "all.toml", needed));
}

TEST(RecipeReader, StepsOnTheCommandLineReplaceEpochsOfTheFile) {
  const std::string file = "model.path = 'm'\ndata.train = 't'\ntrain.epochs = 3\n";
  const Recipe recipe = parse_recipe(file, "a.toml", std::vector<std::string>{"train.steps=9"});
  EXPECT_EQ(recipe.train.steps, 9);
  EXPECT_EQ(recipe.train.epochs, std::nullopt);
}

}  // namespace
}  // namespace strait::recipe
