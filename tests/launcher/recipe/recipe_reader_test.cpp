#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "launcher/base/errors.h"
#include "launcher/recipe/recipe_assembly.h"
#include "launcher/recipe/recipe_io.h"
#include "tests/launcher/user_error.h"
#include "tests/scratch_directory.h"

namespace strait::recipe {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

// The least that a recipe says; tests append to it, from line 7 on.
constexpr const char* kLeast = R"([model]
path = "recipes/models/tiny"
[data]
train = "dates.jsonl"
[train]
steps = 300
)";

Recipe parse(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return parse_recipe(text, "recipes/x.toml", overrides);
}

std::string mistake(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return base::user_error(base::ExitCode::bad_input, [&] { parse(text, overrides); });
}

std::string mistake_after_least(const std::string& lines) { return mistake(kLeast + lines); }

TEST(RecipeReader, FillsDefaults) {
  Recipe expected;
  expected.name = "x";
  expected.model.path = "recipes/models/tiny";
  expected.data.train = {{"dates.jsonl"}};
  expected.train.steps = 300;
  EXPECT_EQ(parse(kLeast), expected);
}

constexpr const char* kEveryKey = R"(
name = "dates"
seed = 7
[model]
path = "m"
weights = "random"
dtype = "bfloat16"
device = "cpu"
recompute = "layer"
lora = { rank = 4, alpha = 2.5, targets = ["c_attn"], target_parameters = ["experts.down_proj"], dropout = 0.1, rslora = true, dora = true, rank_pattern = { "h.0.*" = 2 }, alpha_pattern = { c_fc = 3 }, layers = [0, 2], modules_to_save = ["lm_head"] }
adapter = "a"
quantization = "nf4"
[data]
train = "t"
eval = "e"
tokenizer = "bytes"
row = 64
shuffle = false
[pipeline]
stages = 2
replicas = 2
schedule = "gpipe"
chunks = 1
depth = 3
slices = "auto"
partition = [[0, 5], [6, 11]]
threads = 1
rows = [40, 24]
replan = true
hosts = ["bob@b", "alice@10.0.0.1", "bob@b", "bob@b"]
[train]
epochs = 3
batch = 64
micro_batch = "auto"
learning_rate = 1
decay = "linear"
min_rate = 0.25
warmup = 20
betas = [0.8, 0.9]
moments = "int8"
weight_decay = 0
clip = 0.5
neftune = 5
rates = { wte = 0.5 }
eval_every = 10
preference = { loss = "orpo", beta = 0.25 }
stop_when = { no_better = 3, min_delta = 0.5 }
[codec]
forward = "delta"
forward_bits = 3
first_bits = 7
backward = "fixed"
backward_bits = 6
wire_dtype = "float16"
group = 32
cache = "512MiB"
cache_disk = "2GiB"
[sync]
method = "cocktail"
on_loss = "stop"
random = 0.25
top = 1
bits = 3
[checkpoint]
every = 50
keep = 5
keep_best = true
[on]
end = "a"
failure = "b \"$STRAIT_CAUSE\""
checkpoint = "c"
[hosts]
backend = "ssh"
list = ["alice@10.0.0.1", { name = "bob@b", address = "10.0.0.2", slots = 2, memory = "8GiB", devices = [0, 1], directory = "/data", environment = { OMP_PROC_BIND = "true" }, tflops = 0.5, device = "RTX 4090", price = 0.4, uplink_megabits = 20, downlink_megabits = 80, up_megabits = 100, down_megabits = 200.5 }]
address = "10.0.0.9"
ssh_config = "c"
hold = 60
spare = ["carol@c"]
restart = 5
links = "links.toml"
ship_megabits = 50
ports = "47000-47099"
link_megabits = 100
)";

Recipe::Lora every_lora_key() {
  Recipe::Lora lora;
  lora.rank = 4;
  lora.alpha = 2.5;
  lora.targets = {"c_attn"};
  lora.dropout = 0.1;
  lora.rslora = true;
  lora.dora = true;
  lora.rank_pattern = {{"h.0.*", 2}};
  lora.alpha_pattern = {{"c_fc", 3}};
  lora.layers = {0, 2};
  lora.modules_to_save = {"lm_head"};
  lora.target_parameters = {"experts.down_proj"};
  return lora;
}

TEST(RecipeReader, SetsFieldOfEveryKey) {
  Recipe expected;
  expected.name = "dates";
  expected.seed = 7;
  expected.model = {"m",   Weights::random,  "",  Dtype::bfloat16,  Device::cpu, Recompute::layer,
                    false, every_lora_key(), "a", Quantization::nf4};
  expected.data = {{{"t"}}, {{"e"}}, 0, "bytes", ChatTemplate::own, 64, false};
  expected.pipeline = {2,
                       2,
                       "gpipe",
                       1,
                       3,
                       std::nullopt,
                       {PartitionKind::ranges, {{0, 5}, {6, 11}}, ""},
                       1,
                       false,
                       false,
                       false,
                       std::vector<std::int64_t>{40, 24},
                       true,
                       {"bob@b", "alice@10.0.0.1", "bob@b", "bob@b"}};
  expected.train = {.epochs = 3,
                    .batch = 64,
                    .micro_batch = std::nullopt,
                    .learning_rate = 1.0,
                    .decay = DecayKind::linear,
                    .min_rate = 0.25,
                    .warmup = 20,
                    .betas = {0.8, 0.9},
                    .moments = Moments::int8,
                    .weight_decay = 0.0,
                    .clip = 0.5,
                    .neftune = 5,
                    .rates = {{"wte", 0.5}},
                    .preference = {.loss = PreferenceKind::orpo, .beta = 0.25},
                    .eval_every = 10,
                    .stop_when = {3, 0.5}};
  expected.codec = {
      "delta", 3, 7, "fixed", 6, codec::WireDtype::float16, 32, 512 << 20, std::int64_t{2} << 30U};
  expected.sync = {
      .method = "cocktail", .on_loss = LossRule::stop, .random = 0.25, .top = 1.0, .bits = 3};
  expected.checkpoint = {50, 5, 1};
  expected.on = {"a", "b \"$STRAIT_CAUSE\"", "c"};
  expected.hosts.backend = BackendKind::ssh;
  expected.hosts.list = {{.name = "alice@10.0.0.1"},
                         {.name = "bob@b",
                          .address = "10.0.0.2",
                          .slots = 2,
                          .memory = std::int64_t{8} << 30U,
                          .devices = {0, 1},
                          .directory = "/data",
                          .environment = {{"OMP_PROC_BIND", "true"}},
                          .tflops = 0.5,
                          .device = "RTX 4090",
                          .price = 0.4,
                          .uplink_megabits = 20.0,
                          .downlink_megabits = 80.0,
                          .up_megabits = 100.0,
                          .down_megabits = 200.5}};
  expected.hosts.ports = {47000, 47099};
  expected.hosts.address = "10.0.0.9";
  expected.hosts.ssh_config = "c";
  expected.hosts.hold = 60;
  expected.hosts.spare = {{.name = "carol@c"}};
  expected.hosts.restart = 5;
  expected.hosts.links = "links.toml";
  expected.hosts.ship_megabits = 50.0;
  expected.hosts.link_megabits = 100.0;
  EXPECT_EQ(parse(kEveryKey), expected);
}

TEST(RecipeReader, NamesNearestKeyForUnknownKey) {
  EXPECT_EQ(mistake_after_least("learning_rat = 1e-3\n"),
            "unknown key train.learning_rat (recipes/x.toml:7:16); did you mean learning_rate? "
            "known in [train]: steps, epochs, batch, micro_batch, learning_rate, decay, min_rate, "
            "warmup, betas, optimizer, moments, offload, weight_decay, clip, rates, neftune, "
            "eval_every, stop_when, "
            "preference");
}

TEST(RecipeReader, SaysWhatIsDoneInPlaceOfARemovedKey) {
  EXPECT_EQ(mistake_after_least("[codec]\ncache_kind = \"8bit\"\n"),
            "codec.cache_kind is \"8bit\" (recipes/x.toml:8:14), but this key was removed: cached "
            "values are bfloat16, and codec.cache_disk holds what memory does not; leave it out");
  EXPECT_THAT(mistake(kLeast, {"hosts.simulate.jitter=1ms"}),
              HasSubstr("hosts.simulate.jitter is \"1ms\" (--set hosts.simulate.jitter=1ms), but "
                        "this key was removed: "));
}

TEST(RecipeReader, ProposesKeyOfAnotherTable) {
  EXPECT_THAT(mistake_after_least("[model.lora]\nstages = 2\n"),
              HasSubstr("unknown key model.lora.stages (recipes/x.toml:8:10); did you mean "
                        "pipeline.stages? known in [model.lora]: rank, alpha, targets, "
                        "target_parameters, dropout, "
                        "rslora, dora, rank_pattern, "
                        "alpha_pattern, layers, modules_to_save"));
}

TEST(RecipeReader, RefusesQuantizationWhereTheWholeModelIsTrained) {
  const std::string text =
      "train.steps = 1\ndata.train = \"t\"\n[model]\npath = \"m\"\nquantization = \"int4\"\n";
  EXPECT_THAT(mistake(text), HasSubstr("model.quantization is \"int4\" (recipes/x.toml:5:16), but "
                                       "the whole model is trained"));
  EXPECT_EQ(parse(text + "adapter = \"a\"\n").model.quantization, Quantization::int4);
  EXPECT_EQ(parse(text + "lora = {}\n").model.quantization, Quantization::int4);
}

TEST(RecipeReader, ReportsUnknownTableOnce) {
  EXPECT_EQ(
      mistake_after_least("[pipline]\nstages = 2\nreplicas = 1\n"),
      "unknown table pipline (recipes/x.toml:7:1); did you mean pipeline? known at the top: "
      "name, seed, plugins, model, data, pipeline, train, codec, sync, checkpoint, on, hosts");
}

TEST(RecipeReader, RefusesHowLongLinksStayCutWhereNoneIs) {
  EXPECT_THAT(mistake(kLeast, {"hosts.simulate.cut_for=1s"}),
              HasSubstr("hosts.simulate.cut_for is set (--set hosts.simulate.cut_for=1s), but "
                        "hosts.simulate.cut_every is missing"));
  parse(kLeast, {"hosts.simulate.cut_for=1s", "hosts.simulate.cut_every=30s"});
}

TEST(RecipeReader, NamesTheUnknownTableOfAnOverride) {
  EXPECT_THAT(mistake(kLeast, {"trian.steps=3"}),
              HasSubstr("unknown table trian (--set trian.steps=3); did you mean train? known at "
                        "the top: name, "));
  EXPECT_THAT(mistake(kLeast, {"model.lara.of.rank=3"}),
              HasSubstr("unknown table model.lara (--set model.lara.of.rank=3); did you mean lora? "
                        "known in [model]: "));
  EXPECT_EQ(mistake(kLeast, {"seed.x=3"}),
            "unknown key seed.x (--set seed.x=3); seed is a value and has no keys");
}

TEST(RecipeReader, TakesAnOverrideForTheTextThatItsKeyNeeds) {
  for (const char* name : {"123", "2026-11-28", "1.50", "true"}) {
    EXPECT_EQ(parse(kLeast, {fmt::format("name={}", name)}).name, name);
  }
  EXPECT_THAT(mistake(kLeast, {"train.learning_rate=true"}), HasSubstr("must be a number"));
}

TEST(RecipeReader, SaysHowToWriteANumberWithAPoint) {
  EXPECT_THAT(mistake(kLeast, {"train.learning_rate=.001"}),
              EndsWith("; a number has digits on both sides of its point: 0.001"));
  EXPECT_THAT(mistake(kLeast, {"train.learning_rate=1."}), EndsWith(": 1.0"));
  EXPECT_THAT(mistake(kLeast, {"train.learning_rate=."}), Not(HasSubstr("digits")));
}

TEST(RecipeReader, SaysHowToQuoteTheTextsOfAList) {
  EXPECT_THAT(mistake(kLeast, {"hosts.list=[{name = \"b\", device = \"RTX 9999\"}]"}),
              HasSubstr("must be a GPU that strait knows"));
  EXPECT_THAT(mistake(kLeast, {"hosts.list=[b, c]"}),
              HasSubstr("; the texts of a list have to be in quotes: --set "
                        "'hosts.list=[\"b\",\"c\"]'"));
  EXPECT_THAT(mistake(kLeast, {"train.batch=[c]"}), Not(HasSubstr("in quotes")));
}

TEST(RecipeReader, RefusesWrongTypesWithWhatIsAllowed) {
  EXPECT_EQ(
      mistake_after_least("batch = \"many\"\n"),
      "train.batch is \"many\" (recipes/x.toml:7:9), but must be an integer from 1 to 1048576");
  EXPECT_EQ(mistake_after_least("batch = 2.5\n"),
            "train.batch is 2.5 (recipes/x.toml:7:9), but must be an integer from 1 to 1048576");
  for (const char* number : {"0.1", "4.0", "-0.3", "1e+30", "inf", "nan"}) {
    EXPECT_THAT(mistake_after_least(fmt::format("batch = {}\n", number)),
                HasSubstr(fmt::format("train.batch is {} (", number)));
  }
  EXPECT_THAT(mistake_after_least("batch = [0.9, \"a\", [1, 2.5]]\n"),
              HasSubstr("train.batch is [0.9, \"a\", [1, 2.5]] ("));
  EXPECT_EQ(mistake_after_least("learning_rate = true\n"),
            "train.learning_rate is true (recipes/x.toml:7:17), but must be a number from 0 to 10");
  EXPECT_THAT(mistake_after_least("learning_rate = 2020-01-01\n"),
              HasSubstr("train.learning_rate is 2020-01-01 (recipes/x.toml:7:17)"));
  EXPECT_THAT(mistake("model = 3\n"), HasSubstr("model is 3 (recipes/x.toml:1:9), but must be a "
                                                "table of: path, weights, dtype"));
  EXPECT_THAT(mistake_after_least("[data.shuffle]\n"),
              HasSubstr("data.shuffle is a table (recipes/x.toml:7:1), but must be true or false"));
}

TEST(RecipeReader, ListsAllowedNamesAndTheNearest) {
  EXPECT_EQ(mistake_after_least("decay = \"cosin\"\n"),
            "train.decay is \"cosin\" (recipes/x.toml:7:9), but must be one of \"cosine\", "
            "\"linear\", \"constant\", \"inverse_sqrt\"; did you mean \"cosine\"?");
  EXPECT_EQ(
      mistake_after_least("[pipeline]\ndepth = \"atuo\"\n"),
      "pipeline.depth is \"atuo\" (recipes/x.toml:8:9), but must be an integer from 0 to 16 or "
      "\"auto\"; did you mean \"auto\"?");
}

TEST(RecipeReader, RefusesNumbersOutOfRange) {
  for (const auto* line :
       {"clip = -1", "clip = nan", "clip = inf", "betas = [0.9]", "betas = [0.9, 1.0]", "batch = 0",
        "batch = 9223372036854775807", "micro_batch = -4", "warmup = -1"}) {
    EXPECT_THAT(mistake_after_least(line), HasSubstr("(recipes/x.toml:7:")) << line;
  }
  for (const auto* line :
       {"forward_bits = 9", "backward_bits = 1", "first_bits = 9", "first_bits = 15",
        "first_bits = 8.0", "first_bits = true", "group = 16", "group = 96", "cache = \"4GB\"",
        "cache = -1", "cache = \"99999999TiB\"", "cache = \"GiB\"", "cache_disk = \"1.5GiB\""}) {
    EXPECT_THAT(mistake_after_least("[codec]\n" + std::string(line)), HasSubstr("x.toml:8:"))
        << line;
  }
  for (const auto* line : {"ports = \"1-\"", "ports = \"0-5\"", "ports = \"9-3\"",
                           "ports = \"1-65536\"", "ports = 47000", "list = []", "list = [1]"}) {
    EXPECT_THAT(mistake_after_least("[hosts]\n" + std::string(line)), HasSubstr("x.toml:8:"))
        << line;
  }
  for (const auto* value :
       {"[]", "[[1, 0]]", "[[0, 1, 2]]", "[0, 1]", "[[-1, 0]]", "\"plugin:\"", "\"other\"", "3"}) {
    EXPECT_THAT(mistake_after_least("[pipeline]\npartition = " + std::string(value)),
                HasSubstr("pipeline.partition is"))
        << value;
  }
}

TEST(RecipeReader, RefusesContradictingCodecsWithReason) {
  EXPECT_EQ(mistake_after_least("[codec]\nbackward = \"delta\"\ncache = 0\ncache_disk = \"0B\"\n"),
            "codec.cache and codec.cache_disk are both 0 (recipes/x.toml:9:9, "
            "recipes/x.toml:10:14), but codec.backward is \"delta\", which needs them for its "
            "activation cache; set one of them, or codec.backward = \"fixed\"");
  EXPECT_EQ(mistake_after_least("[codec]\nforward = \"delta\"\ncache = 0\ncache_disk = \"0B\"\n"),
            "codec.cache and codec.cache_disk are both 0 (recipes/x.toml:9:9, "
            "recipes/x.toml:10:14), but codec.forward is \"delta\", which needs them for its "
            "activation cache; set one of them, or codec.forward = \"fixed\"");
}

TEST(RecipeReader, RefusesCodecsInAdditionToTheirBudget) {
  EXPECT_EQ(mistake_after_least("[codec]\nbudget = \"0.1 %\"\nforward = \"delta\"\n"),
            "codec.forward is set (recipes/x.toml:9:11), but with codec.budget the plan chooses "
            "codecs and bits; leave one out");
  for (const std::string text : {"\"0.1\"", "0.1", "\"-1 %\"", "\"0 %\"", "\"nan %\""}) {
    EXPECT_THAT(mistake_after_least("[codec]\nbudget = " + text + "\n"),
                testing::HasSubstr("codec.budget"))
        << text;
  }
}

TEST(RecipeReader, RefusesBitsOfACodecThatIsNotNamed) {
  EXPECT_EQ(mistake_after_least("[codec]\nforward_bits = 3\n"),
            "codec.forward_bits is set (recipes/x.toml:8:16), but codec.forward is missing, and "
            "without it values are sent raw; set codec.forward too, for example to \"fixed\"");
  EXPECT_THAT(mistake(kLeast, {"codec.backward_bits=3"}), HasSubstr("codec.backward is missing"));
  const std::string raw = "[codec]\nforward = \"raw\"\nforward_bits = 3\n";
  EXPECT_EQ(parse(std::string(kLeast) + raw).codec.forward, "raw");
}

TEST(RecipeReader, RefusesPreferencesThatCannotBe) {
  const auto refused = [](const std::string& lines) { return mistake_after_least(lines); };
  EXPECT_THAT(refused("[train.preference]\nbeta = 0.1\n"),
              HasSubstr("train.preference.beta is set (recipes/x.toml:8:8), but "
                        "train.preference.loss is \"none\", which does not read it"));
  EXPECT_THAT(refused("[train.preference]\nloss = \"orpo\"\nmargin = 1\n"),
              HasSubstr("train.preference.margin is set"));
  EXPECT_THAT(refused("[train.preference]\nloss = \"dpo\"\ndesirable_weight = 2\n"),
              HasSubstr("train.preference.desirable_weight is set"));
  EXPECT_THAT(refused("[train.preference]\nloss = \"orpo\"\nreference = \"first\"\n"),
              HasSubstr("train.preference.reference is set"));
  EXPECT_THAT(refused("[train.preference]\nloss = \"kto\"\nreference = \"first\"\n[model.lora]\n"
                      "targets = [\"q_proj\"]\n"),
              HasSubstr("compares with the model without them; leave it out"));
  EXPECT_THAT(mistake(kLeast, {"data.chat_template=chatlm"}),
              HasSubstr("one of \"own\", \"chatml\", \"llama3\", \"gemma\", \"mistral\""));
  EXPECT_THAT(refused("[train.preference]\nloss = \"dpo\"\n[model.lora]\n"
                      "modules_to_save = [\"lm_head\"]\n"),
              HasSubstr("model.lora.modules_to_save is set"));
  EXPECT_THAT(mistake(kLeast, {"train.preference.loss=orpo", "data.targets=all"}),
              HasSubstr("data.targets is set (--set data.targets=all)"));
  EXPECT_THAT(mistake(kLeast, {"train.preference.loss=simpo", "data.too_long=split"}),
              HasSubstr("a preference has both of its answers in one row"));
  EXPECT_THAT(refused("min_rate = 1\n"),
              HasSubstr("train.min_rate is 1 (recipes/x.toml:7:12), but must not be above "
                        "train.learning_rate, 0.001"));
}

TEST(RecipeReader, RefusesCheckpointsInMemoryWhereTheyCannotBe) {
  const std::string every = "[checkpoint]\nmemory_every = 5\n";
  EXPECT_EQ(mistake_after_least(every + "memory = 0\n"),
            "checkpoint.memory_every is set, but checkpoint.memory is 0 (recipes/x.toml:8:16, "
            "recipes/x.toml:9:10): they are copied while training goes on, which takes memory; "
            "raise it");
  EXPECT_THAT(mistake_after_least(every + "[pipeline]\nreplicas = 1\n[sync]\n"
                                          "on_loss = \"continue\"\n"),
              HasSubstr("but sync.on_loss is \"continue\" (recipes/x.toml:8:16, "
                        "recipes/x.toml:12:11): then the other replicas hold"));
}

// Lines of [train], and of the tables after it, of a recipe that is evaluated.
std::string mistake_of_evaluated(const std::string& lines) {
  return mistake(std::string(kLeast) + lines, {"data.hold_out=0.1"});
}

TEST(RecipeReader, RefusesToStopOrKeepByAnEvaluationThatIsNotThere) {
  EXPECT_EQ(mistake_of_evaluated("stop_when = { no_better = 3 }\n"),
            "train.stop_when.no_better is 3 (recipes/x.toml:7:27), but nothing is evaluated before "
            "the last step; set train.eval_every to a number of steps, and data.eval or "
            "data.hold_out");
  EXPECT_THAT(mistake_of_evaluated("eval_every = 2\nstop_when = { min_delta = 3 }\n"),
              HasSubstr("train.stop_when.no_better is missing, and without it no run ends early"));
  EXPECT_THAT(mistake_of_evaluated("eval_every = 2\nstop_when.no_better = 3\n[pipeline]\n"
                                   "replicas = 1\n[sync]\non_loss = \"continue\"\n"),
              HasSubstr("a replica that comes back has not seen all evaluations; leave one of"));
  for (const char* every : {"3", "0", "1"}) {
    EXPECT_THAT(
        mistake_of_evaluated(std::string("eval_every = 2\n[checkpoint]\nkeep_best = 2\nevery = ") +
                             every),
        HasSubstr(std::string("but checkpoint.every is ") + every + " and train.eval_every 2 ("));
  }
  EXPECT_THAT(mistake_of_evaluated("[checkpoint]\nkeep_best = true\n"),
              HasSubstr("make checkpoint.every a multiple of train.eval_every, both above 0"));
  const auto read = [](const std::string& best) {
    return parse(
               std::string(kLeast) + "eval_every = 2\n[checkpoint]\nevery = 4\nkeep_best = " + best,
               {"data.hold_out=0.1"})
        .checkpoint.keep_best;
  };
  EXPECT_EQ(read("true"), 1);
  EXPECT_EQ(read("false"), 0);
  EXPECT_EQ(read("3"), 3);
}

Recipe::Sync sync_of(const std::string& lines) {
  return parse(std::string(kLeast) + "batch = 8\n[pipeline]\nreplicas = 2\n[sync]\n" + lines).sync;
}

TEST(RecipeReader, ReadsKeysOfEachSyncMethod) {
  EXPECT_EQ(sync_of(""), Recipe::Sync());
  EXPECT_EQ(sync_of("wire_dtype = \"bfloat16\"").wire_dtype, Dtype::bfloat16);
  const auto streaming = sync_of(
      "method = \"streaming_diloco\"\nfragments = 3\nlate = 2\nbits = 8\n"
      "every = 30\nouter_learning_rate = 0.5\nouter_momentum = \"auto\"");
  EXPECT_EQ(streaming.fragments, 3);
  EXPECT_EQ(streaming.late, 2);
  EXPECT_EQ(streaming.bits, 8);
  EXPECT_EQ(streaming.every, 30);
  EXPECT_EQ(streaming.outer_learning_rate, 0.5);
  EXPECT_EQ(streaming.outer_momentum, std::nullopt);
  EXPECT_EQ(sync_of("method = \"powersgd\"\nrank = 4").rank, 4);
  EXPECT_EQ(sync_of("method = \"auto\"").method, "auto");
  const auto automatic = sync_of("method = \"auto\"\ntop = 0.5\nbits = \"auto\"");
  EXPECT_EQ(automatic.top, 0.5);
  EXPECT_EQ(automatic.random, std::nullopt);
  EXPECT_EQ(automatic.bits, std::nullopt);
}

TEST(RecipeReader, DropsSettingsOfFormerSyncMethodWhenOverridden) {
  const std::string file = std::string(kLeast) +
                           "batch = 8\n[pipeline]\nreplicas = 2\n[sync]\ntop = 0.5\n"
                           "method = \"cocktail\"\non_loss = \"continue\"\n";
  const auto sync = [&](const std::vector<std::string>& overrides) {
    return parse(file, overrides).sync;
  };
  EXPECT_EQ(sync({"sync.method=cocktail", "sync.bits=3"}).top, 0.5);
  EXPECT_EQ(sync({"sync.random=1"}).top, 0.5);
  Recipe::Sync powersgd;
  powersgd.method = "powersgd";
  powersgd.rank = 4;
  powersgd.on_loss = LossRule::continue_run;  // of no method, so it stays
  EXPECT_EQ(sync({"sync.rank=4", "sync.method=powersgd"}), powersgd);
  powersgd.on_loss = LossRule::stop;
  EXPECT_EQ(sync({"sync.rank=4", "sync.method=powersgd", "sync.on_loss=stop"}), powersgd);
  EXPECT_EQ(sync({"pipeline.replicas=1"}), Recipe::Sync());
  EXPECT_THAT(mistake(file, {"sync.method=powersgd", "sync.top=1"}),
              HasSubstr("sync.top is 1 (--set sync.top=1), but sync.method \"powersgd\""));
  EXPECT_THAT(mistake(file, {"pipeline.replicas=1", "sync.top=1"}),
              HasSubstr("nothing to synchronise"));
}

TEST(RecipeReader, AnotherBudgetReplacesTheCodecThatARunChoseAndTheOtherWayRound) {
  const std::string chosen = std::string(kLeast) +
                             "[codec]\nforward = \"transform\"\nforward_bits = 4\nfirst_bits = 7\n"
                             "backward = \"fixed\"\nbackward_bits = 5\ncache = \"1GiB\"\n";
  const Recipe::Codec codec = parse(chosen, {"codec.budget=0.01 %"}).codec;
  EXPECT_EQ(codec.budget, 0.01);
  EXPECT_EQ(codec.forward, "raw");
  EXPECT_EQ(codec.cache, std::int64_t{1} << 30) << "of no choice, so it stays";
  const std::string budget = std::string(kLeast) + "[codec]\nbudget = \"0.1 %\"\n";
  EXPECT_EQ(parse(budget, {"codec.forward=fixed"}).codec.budget, 0);
  EXPECT_THAT(mistake(budget, {"codec.budget=1 %", "codec.forward=fixed"}),
              HasSubstr("with codec.budget the plan chooses codecs and bits"));
}

TEST(RecipeReader, KeepsSettingsWhereTheDefaultSyncMethodIsNamed) {
  const std::string file =
      std::string(kLeast) +
      "batch = 8\n[pipeline]\nreplicas = 2\n[sync]\nwire_dtype = \"bfloat16\"\n";
  const Recipe::Sync before = parse(file, {}).sync;
  Recipe::Sync named = parse(file, {"sync.method=allreduce"}).sync;
  EXPECT_EQ(named.method, "allreduce");
  named.method = before.method;
  EXPECT_EQ(named, before);
}

TEST(RecipeReader, TakesDottedKeysOfATableWithOthersBetween) {
  const Recipe recipe = parse(std::string(kLeast) +
                                  "batch = 8\n[model.lora]\nrank_pattern.q_proj = 8\nrank = 16\n"
                                  "rank_pattern.v_proj = 4\n",
                              {});
  ASSERT_TRUE(recipe.model.lora);
  EXPECT_EQ(recipe.model.lora->rank, 16);
  EXPECT_EQ(recipe.model.lora->rank_pattern,
            (std::map<std::string, std::int64_t>{{"q_proj", 8}, {"v_proj", 4}}));
}

TEST(RecipeReader, RefusesKeysThatSyncMethodDoesNotRead) {
  const std::string replicas = "batch = 8\n[pipeline]\nreplicas = 2\n[sync]\n";
  EXPECT_EQ(mistake_after_least(replicas + "method = \"cocktail\"\nrank = 4\n"),
            "sync.rank is 4 (recipes/x.toml:12:8), but sync.method \"cocktail\" does not read it; "
            "it reads random, top, bits, outer_learning_rate, outer_momentum");
  EXPECT_EQ(mistake_after_least(replicas + "top = 0.5\n"),
            "sync.top is 0.5 (recipes/x.toml:11:7), but sync.method \"allreduce\" does not read "
            "it; it reads wire_dtype");
  EXPECT_THAT(mistake_after_least(replicas + "method = \"auto\"\nrank = 4\n"),
              HasSubstr("\"auto\" does not read it; it reads random, top, bits"));
  EXPECT_THAT(mistake_after_least(replicas + "method = \"bytegrad\"\nbits = 8\n"),
              HasSubstr("does not read it; it has no settings"));
  EXPECT_EQ(mistake_after_least("[sync]\nmethod = \"cocktail\"\n"),
            "sync.method is \"cocktail\" (recipes/x.toml:8:10), but pipeline.replicas is 1: there "
            "is nothing to synchronise; leave [sync] out, or set more replicas");
  EXPECT_THAT(mistake_after_least(replicas + "method = \"coctail\"\n"),
              testing::AllOf(HasSubstr("must be one of \"allreduce\", "),
                             HasSubstr("did you mean \"cocktail\"?")));
  for (const auto* line : {"random = 0", "top = 1.5", "bits = 9", "every = 0", "fragments = 0",
                           "late = -1", "rank = 0", "wire_dtype = \"float16\""}) {
    EXPECT_THAT(mistake_after_least(replicas + line), HasSubstr("x.toml:11:")) << line;
  }
}

TEST(RecipeReader, RefusesNamesOutsideOfRunsDirectory) {
  for (const auto* name : {"\"../x\"", "\"a/b\"", "\".hidden\"", "\"\"", "3", "\"a b\""}) {
    EXPECT_THAT(mistake("name = " + std::string(name) + "\n" + kLeast), HasSubstr("name is "))
        << name;
  }
}

TEST(RecipeReader, ReportsAllMistakesFromTopToBottom) {
  EXPECT_THAT(
      mistake("[train]\nclip = -1\nbatch = 0\n[codec]\ngruop = 3\n", {"data.row=1", "nonsense=2"}),
      testing::MatchesRegex("8 mistakes in recipes/x.toml:\n"
                            "  train.clip is .*x.toml:2:8.*\n"
                            "  train.batch is .*x.toml:3:9.*\n"
                            "  unknown key codec.gruop .*did you mean group.*\n"
                            "  data.row is 1 .--set data.row=1.*\n"
                            "  unknown key nonsense .--set nonsense=2.*\n"
                            "  model.path is missing .*\n"
                            "  data.train is missing .*\n"
                            "  train.steps is missing .*"));
}

TEST(RecipeReader, NamesBothOriginsOfContradictingKeys) {
  EXPECT_THAT(mistake_after_least("epochs = 2\n"),
              HasSubstr("train.steps (recipes/x.toml:6:9) and train.epochs (recipes/x.toml:7:10) "
                        "are both set"));
  EXPECT_EQ(mistake_after_least("batch = 10\n"),
            "train.batch is 10 (recipes/x.toml:7:9), but must be a multiple of 4: "
            "train.micro_batch 4 times pipeline.replicas 1");
  EXPECT_EQ(mistake_after_least("[pipeline]\nstages = 3\npartition = [[0, 1]]\n"),
            "pipeline.partition has 1 ranges, but pipeline.stages is 3 (recipes/x.toml:9:13, "
            "recipes/x.toml:8:10)");
  EXPECT_THAT(mistake_after_least("eval_every = 5\n"), HasSubstr("data.eval is missing"));
  EXPECT_THAT(mistake_after_least("[hosts]\nlist = [\"a\"]\n"),
              HasSubstr("hosts.list is set while hosts.backend is \"local\""));
  EXPECT_THAT(mistake_after_least("[hosts]\nbackend = \"ssh\"\n"),
              HasSubstr("hosts.list is missing while hosts.backend is \"ssh\""));
}

TEST(RecipeReader, ReadsRowsOfReplicas) {
  const auto rows = [](const std::string& value) {
    return parse(kLeast, {"pipeline.replicas=2", "pipeline.rows=" + value}).pipeline.rows;
  };
  EXPECT_EQ(rows("\"auto\""), std::nullopt);
  EXPECT_THAT(*rows("\"equal\""), testing::IsEmpty());
  EXPECT_THAT(*rows("[28, 4]"), testing::ElementsAre(28, 4));
  const auto refused = [](const std::string& value, const std::string& replicas) {
    return mistake(kLeast, {"pipeline.replicas=" + replicas, "pipeline.rows=" + value});
  };
  EXPECT_THAT(refused("[28, 4]", "3"),
              HasSubstr("pipeline.replicas is 3; state the rows of each replica"));
  EXPECT_THAT(refused("[28, 8]", "2"), HasSubstr("train.batch is 32; make them sum to it"));
  EXPECT_THAT(refused("[30, 2]", "2"), HasSubstr("train.micro_batch is 4; make each a multiple"));
  EXPECT_THAT(refused("[28, 4]", "\"auto\""), HasSubstr("pipeline.replicas is \"auto\""));
  EXPECT_THAT(refused("[32, 0]", "2"), HasSubstr("but must be \"auto\", \"equal\""));
}

TEST(RecipeReader, SlicesDivideRowsThatAreNotPreferences) {
  EXPECT_EQ(parse(kLeast, {}).pipeline.slices, 1);
  EXPECT_EQ(parse(kLeast, {"pipeline.slices=auto"}).pipeline.slices, std::nullopt);
  EXPECT_EQ(parse(kLeast, {"pipeline.slices=4", "data.row=64"}).pipeline.slices, 4);
  EXPECT_THAT(mistake(kLeast, {"pipeline.slices=3", "data.row=64"}),
              HasSubstr("but data.row is 64; make it a divisor of that"));
  EXPECT_THAT(mistake(kLeast, {"pipeline.slices=2", "train.preference.loss=orpo"}),
              HasSubstr("which is of whole answers"));
  EXPECT_THAT(mistake(kLeast, {"pipeline.slices=2", "model.recompute=offload"}),
              HasSubstr("which brings back whole micro-batches"));
}

TEST(RecipeReader, ReadsListsOfDataFiles) {
  const auto train = [](const std::string& value) {
    return parse(kLeast, {"data.train=" + value}).data.train;
  };
  EXPECT_EQ(train("a.jsonl"), (std::vector<data::DataFile>{{"a.jsonl"}}));
  EXPECT_EQ(train(R"(["a", { path = "b", weight = 2 }, { path = "c" }])"),
            (std::vector<data::DataFile>{{"a"}, {"b", 2}, {"c"}}));
  const Recipe tables = parse(
      "[model]\npath = \"m\"\n[train]\nsteps = 1\n[[data.train]]\npath = \"a\"\n"
      "[[data.train]]\npath = \"b\"\nweight = 0.5\n");
  EXPECT_EQ(tables.data.train, (std::vector<data::DataFile>{{"a"}, {"b", 0.5}}));
  EXPECT_EQ(parse(kLeast, {"data.hold_out=0.02"}).data.hold_out, 0.02);
}

TEST(RecipeReader, KnowsAFileByAnotherName) {
  const ScratchDirectory folder;
  const auto of = [&folder](const char* one, const char* other) {
    return fmt::format(R"(["{}", "{}"])", (folder / one).string(), (folder / other).string());
  };
  ScratchDirectory::write(folder / "a", "text");
  ScratchDirectory::write(folder / "b", "text");
  std::filesystem::create_symlink("a", folder / "link");
  std::filesystem::create_symlink("absent", folder / "nowhere");
  for (const auto& list : {of("a", "link"), of("a", "./a"), of("absent", "./absent")}) {
    EXPECT_THAT(mistake(kLeast, {"data.train=" + list}), HasSubstr("is listed twice")) << list;
  }
  for (const auto& list : {of("a", "b"), of("link", "b"), of("absent", "a"), of("nowhere", "a")}) {
    EXPECT_EQ(parse(kLeast, {"data.train=" + list}).data.train.size(), 2U) << list;
  }
}

TEST(RecipeReader, NamesInvalidData) {
  const auto of = [](const std::string& setting) { return mistake(kLeast, {setting}); };
  EXPECT_THAT(of(R"(data.train=[{ path = "a", weight = 0 }])"),
              HasSubstr("the weight of \"a\" is 0, but must be a number above 0"));
  EXPECT_THAT(of(R"(data.train=[{ path = "a", weight = -1.5 }])"), HasSubstr("weight of \"a\""));
  EXPECT_THAT(of(R"(data.train=[{ path = "a", weight = nan }])"), HasSubstr("weight of \"a\""));
  EXPECT_THAT(of(R"(data.eval=["a", { path = "a" }])"),
              HasSubstr("a is listed twice; list it once, with a weight"));
  EXPECT_THAT(of("data.train=[]"), HasSubstr("the list is empty"));
  EXPECT_THAT(of(R"(data.train={ path = "a" })"), HasSubstr("must be a path, or a list of paths"));
  EXPECT_THAT(of(R"(data.train=[{ file = "a" }])"), HasSubstr("a file has no \"file\""));
  EXPECT_THAT(of(R"(data.train=[{ weight = 1.0 }])"), HasSubstr("an entry has no path"));
  EXPECT_THAT(of("data.hold_out=1"), HasSubstr("must be a number from 0 to below 1"));
  EXPECT_THAT(of("data.hold_out=-0.1"), HasSubstr("must be a number from 0 to below 1"));
  EXPECT_THAT(mistake(kLeast, {"data.hold_out=0.1", "data.eval=e"}),
              HasSubstr("data.hold_out and data.eval are both set"));
  EXPECT_THAT(of("data.packing=decreasin"), HasSubstr("did you mean \"decreasing\"?"));
  EXPECT_THAT(
      mistake(kLeast, {"data.overlap=64", "data.row=64"}),
      HasSubstr("data.overlap is 64 (--set data.overlap=64, --set data.row=64), but must be "
                "less than data.row, 64"));
}

TEST(RecipeReader, NamesInvalidHost) {
  const auto of_list = [](const std::string& list) {
    return mistake_after_least("[hosts]\nbackend = \"ssh\"\nlist = " + list + "\n");
  };
  EXPECT_THAT(of_list("[\"-oProxyCommand=x\"]"),
              HasSubstr("\"-oProxyCommand=x\" is not a host name"));
  EXPECT_THAT(of_list("[\"a b\"]"), HasSubstr("not a host name for ssh"));
  EXPECT_THAT(of_list("[\"a$(id)\"]"), HasSubstr("not a host name for ssh"));
  EXPECT_THAT(of_list("[\"a\", \"a\"]"), HasSubstr("a is listed twice; list it once, with slots"));
  EXPECT_THAT(of_list("[{ name = \"a\", slot = 2 }]"),
              HasSubstr("a host has no \"slot\"; did you mean \"slots\"?"));
  EXPECT_THAT(of_list("[{ name = \"a\", colour = 2 }]"),
              HasSubstr("a host has no \"colour\"; it may have name, address, slots, memory"));
  EXPECT_THAT(of_list("[{ name = \"a\", memory = \"8GB\" }]"),
              HasSubstr("memory of host a is \"8GB\", but must be a size"));
  EXPECT_THAT(of_list("[{ name = 5, slots = 9999 }]"), HasSubstr("name of host ? is 5"));
  EXPECT_THAT(of_list("[{ slots = 2 }]"), HasSubstr("a host without a name"));
}

TEST(RecipeReader, RefusesRestartsAndSparesThatCannotBe) {
  const std::string ssh = "[hosts]\nbackend = \"ssh\"\nlist = [\"a\", \"b\"]\n";
  EXPECT_EQ(parse(std::string(kLeast) + ssh + "spare = [\"c\"]\nrestart = 5\n").hosts.restart, 5);
  EXPECT_EQ(parse(std::string(kLeast) + ssh + "spare = []\n").hosts.restart, std::nullopt);
  // For a trial on this machine nothing has to be edited.
  const std::string spare = kLeast + ssh + "spare = [\"c\"]\n";
  EXPECT_EQ(parse(spare, {"hosts.backend=local"}).hosts.spare.size(), 0U);
  EXPECT_THAT(mistake_after_least(ssh + "spare = [\"b\"]\n"),
              HasSubstr("host b is in hosts.list and in hosts.spare"));
  EXPECT_THAT(mistake_after_least(ssh + "spare = [{ name = \"c\", slots = 2 }]\n"),
              HasSubstr("a spare host gets those of the host that it replaces"));
  EXPECT_THAT(mistake_after_least("[hosts]\nspare = [\"c\"]\n"),
              HasSubstr("hosts.spare is set while hosts.backend is \"local\""));
}

TEST(RecipeReader, RecipesForSlurmAreToldWhatToDo) {
  EXPECT_THAT(mistake_after_least("[hosts]\nbackend = \"slurm\"\n"),
              HasSubstr("start the recipe with: srun strait run RECIPE --rendezvous"));
  EXPECT_THAT(mistake_after_least("[hosts.slurm]\npartition = \"gpu\"\n"),
              HasSubstr("this key was removed: options of a job are given to sbatch or srun"));
}

TEST(Hostfile, IsReadAsMpiAndDeepSpeedWriteIt) {
  const RecipeValue hosts = hosts_in_hostfile(
      "# two nodes\nworker-1 slots=4\n\n  worker-2 slots=2 max_slots=8 # the small one\nworker-3\n",
      "hostfile");
  EXPECT_EQ(hosts, RecipeValue::parse(R"([{"name": "worker-1", "slots": 4},
                                          {"name": "worker-2", "slots": 2}, "worker-3"])"));
  const auto refusal = [](const char* text) {
    return base::user_error(base::ExitCode::bad_input,
                            [text] { hosts_in_hostfile(text, "hostfile"); });
  };
  EXPECT_THAT(refusal("a\nb slots=x\n"), HasSubstr("hostfile:2 has \"slots=x\" after the host"));
  EXPECT_THAT(refusal("a slot=2\n"), HasSubstr("hostfile:1 has \"slot=2\" after the host"));
  EXPECT_THAT(refusal("# nothing\n"), HasSubstr("hostfile names no host"));
}

TEST(Hostfile, TakesThePlaceOfTheList) {
  const ScratchDirectory scratch;
  const std::string file = (scratch / "hostfile").string();
  ScratchDirectory::write(file, "a slots=2\nb\n");
  const std::string ssh = std::string(kLeast) + "[hosts]\nbackend = \"ssh\"\n";
  const Recipe::Hosts hosts = parse(ssh + "file = \"" + file + "\"\n").hosts;
  ASSERT_EQ(hosts.list.size(), 2U);
  EXPECT_EQ(hosts.list[0], (RecipeHost{.name = "a", .slots = 2}));
  EXPECT_EQ(hosts.list[1], RecipeHost{.name = "b"});
  // An override of one replaces the other.
  const std::string listed = ssh + "list = [\"c\"]\n";
  EXPECT_EQ(parse(listed, {"hosts.file=" + file}).hosts.list, hosts.list);
  EXPECT_EQ(parse(ssh + "file = \"nowhere\"\n", {"hosts.list=[\"c\"]"}).hosts.list.size(), 1U);
  EXPECT_EQ(parse(ssh + "file = \"nowhere\"\n", {"hosts.backend=local"}).hosts.list.size(), 0U);
  EXPECT_THAT(mistake(listed + "file = \"" + file + "\"\n"), HasSubstr("keep one of them"));
  EXPECT_THAT(mistake(ssh + "file = \"nowhere\"\n"),
              HasSubstr("cannot read the hostfile nowhere: No such file"));
  EXPECT_THAT(mistake(ssh + "file = 5\n"), HasSubstr("hosts.file is 5"));
}

// What `strait plan --emit commands` prints has to be accepted for a recipe of any backend.
TEST(RecipeReader, OverriddenBackendDropsWhatItDoesNotTake) {
  const std::string ssh = std::string(kLeast) +
                          "[hosts]\nbackend = \"ssh\"\nlist = [\"a\", \"b\"]\n"
                          "spare = [\"c\"]\nrestart = 5\n";
  const Recipe::Hosts join = parse(ssh, {"hosts.backend=\"join\""}).hosts;
  EXPECT_EQ(join.list.size(), 2U);
  EXPECT_EQ(join.spare.size(), 1U);
  EXPECT_EQ(join.restart, 5);
  EXPECT_TRUE(parse(ssh, {"hosts.backend=ssh", "hosts.backend=local"}).hosts.spare.empty());
  EXPECT_EQ(parse(ssh, {"hosts.backend=ssh"}).hosts.spare.size(), 1U);
  const std::string simulated = std::string(kLeast) + "[hosts.simulate]\ndelay = \"1ms\"\n";
  EXPECT_FALSE(parse(simulated, {"hosts.backend=ssh", "hosts.list=[\"a\"]"}).hosts.simulate.any());
  EXPECT_TRUE(parse(simulated, {"hosts.backend=local"}).hosts.simulate.any());
}

TEST(RecipeReader, ReadsSimulatedPaths) {
  const net::PathConditions path =
      parse(std::string(kLeast) +
            "[hosts.simulate]\nrate = \"100Mbit/s\"\ndelay = \"20.5 ms\"\n"
            "loss = 0.001\ncut_every = \"30s\"\n")
          .hosts.simulate;
  using std::chrono::milliseconds;
  EXPECT_EQ(path.bits_per_second, 100'000'000);
  EXPECT_EQ(path.delay, std::chrono::microseconds(20'500));
  EXPECT_EQ(path.loss, 0.001);
  EXPECT_EQ(path.cut_every, std::chrono::seconds(30));
  EXPECT_EQ(path.cut_for, std::chrono::seconds(1));
  EXPECT_THAT(mistake_after_least("[hosts.simulate]\nrate = \"100 Mbps\"\n"),
              HasSubstr("must be a text from \"1kbit/s\" to \"100Gbit/s\""));
  EXPECT_THAT(mistake_after_least("[hosts.simulate]\ndelay = \"-1ms\"\n"),
              HasSubstr("must be a text from \"0us\" to \"10s\""));
  EXPECT_THAT(mistake_after_least("[hosts]\nbackend = \"ssh\"\nlist = [\"a\"]\n"
                                  "[hosts.simulate]\ndelay = \"1ms\"\n"),
              HasSubstr("hosts.simulate is set while hosts.backend is \"ssh\""));
}

TEST(RecipeReader, DefaultsToDocumentedPortsForOtherHosts) {
  const std::string ssh = "[hosts]\nbackend = \"ssh\"\nlist = [\"a\"]\n";
  EXPECT_EQ(parse(std::string(kLeast) + ssh).hosts.ports, kHostPorts);
}

// What decides speed and changes no result.
TEST(RecipeReader, LeavesOpenWhatHostsWithoutStagesRun) {
  const std::string hosts =
      std::string(kLeast) + "[hosts]\nbackend = \"ssh\"\nlist = [\"a\", \"b\"]\n";
  const Recipe open = parse(hosts);
  EXPECT_TRUE(open.pipeline.choose_stages && open.pipeline.choose_replicas);
  EXPECT_TRUE(open.pipeline.choose_schedule && open.model.choose_recompute);
  EXPECT_EQ(open.train.micro_batch, std::nullopt);
  EXPECT_EQ(parse(recipe_to_toml(open)), open);
  const Recipe stated = parse(hosts, {"pipeline.stages=2"});
  EXPECT_FALSE(stated.pipeline.choose_stages || stated.pipeline.choose_replicas ||
               stated.pipeline.choose_schedule || stated.model.choose_recompute);
  EXPECT_EQ(stated.train.micro_batch, 4);
  const Recipe partly = parse(hosts, {"pipeline.replicas=2", "pipeline.schedule=gpipe"});
  EXPECT_TRUE(partly.pipeline.choose_stages);
  EXPECT_FALSE(partly.pipeline.choose_replicas || partly.pipeline.choose_schedule);
  EXPECT_FALSE(parse(hosts, {"pipeline.partition=[[0, 3], [4, 5]]"}).pipeline.choose_stages);
  EXPECT_FALSE(parse(kLeast).pipeline.choose_stages);
}

TEST(RecipeReader, RefusesToReplanARunThatDoesNotStartAgain) {
  constexpr const char* kHosts = "[hosts]\nbackend = \"ssh\"\nlist = [\"a\", \"b\"]\n";
  const std::string replan = std::string(kLeast) + "[pipeline]\nreplan = true\n";
  EXPECT_THAT(mistake(replan), HasSubstr("does not start again by itself"));
  EXPECT_THAT(mistake(replan + kHosts, {"hosts.restart=0"}), HasSubstr("hosts.restart"));
  EXPECT_TRUE(parse(replan + kHosts).pipeline.replan);
}

TEST(RecipeReader, NamesPositionOfTomlError) {
  EXPECT_THAT(mistake("[model\npath = 1\n"), HasSubstr("recipes/x.toml:1:"));
  EXPECT_THAT(mistake("a = 1\na = 2\n"), HasSubstr("is not TOML: "));
}

TEST(RecipeReader, OverridesWinAndAreReadAsTomlOrText) {
  const auto recipe =
      parse(kLeast, {"train.batch=64", "train.learning_rate=2e-4", "pipeline.schedule=1f1b",
                     "pipeline.stages=2", "pipeline.partition=[[0, 1], [2, 3]]", "data.train=a b/c",
                     "model.path=\"quoted\"", "data.shuffle=false", "train.batch=128"});
  EXPECT_EQ(recipe.train.batch, 128);
  EXPECT_EQ(recipe.train.learning_rate, 2e-4);
  EXPECT_EQ(recipe.pipeline.schedule, "1f1b");
  EXPECT_EQ(recipe.pipeline.partition.ranges, (std::vector<std::pair<int, int>>{{0, 1}, {2, 3}}));
  EXPECT_EQ(recipe.data.train, (std::vector<data::DataFile>{{"a b/c"}}));
  EXPECT_EQ(recipe.model.path, "quoted");
  EXPECT_FALSE(recipe.data.shuffle);
}

TEST(RecipeReader, RemovesKeysAndTablesThatOverridesLeaveEmpty) {
  const std::string file =
      std::string(kLeast) + "batch = 8\n[checkpoint]\nevery = 7\n[codec]\nforward = \"delta\"\n";
  const Recipe plain = parse(std::string(kLeast));
  EXPECT_EQ(parse(file, {"train.batch=", "checkpoint.every=", "codec="}), plain);
  EXPECT_EQ(parse(file, {"train.batch=3", "train.batch=", "codec.forward=", "checkpoint="}), plain);
  EXPECT_EQ(parse(file, {"train.batch=", "train.batch=12"}).train.batch, 12);
  EXPECT_EQ(parse(file, {"data.eval="}), parse(file));  // the file does not set it
  EXPECT_THAT(mistake(file, {"name=\"\""}), HasSubstr("name is \"\" (--set"));  // a value
  EXPECT_THAT(mistake(file, {"model.path="}), HasSubstr("model.path is missing"));
  EXPECT_THAT(mistake(file, {"train.bach="}),
              HasSubstr("unknown key train.bach (--set train.bach=); did you mean"));
  EXPECT_THAT(mistake(file, {"="}), HasSubstr("has no key"));
}

TEST(RecipeReader, QuotesOverrideInItsMistakes) {
  EXPECT_EQ(mistake(kLeast, {"codec.forward_bits=9"}),
            "codec.forward_bits is 9 (--set codec.forward_bits=9), but must be an integer from 2 "
            "to 8");
  EXPECT_THAT(mistake(kLeast, {"train.batch"}),
              HasSubstr("--set train.batch has no key or no value"));
  EXPECT_THAT(mistake(kLeast, {"train.batch=1\nseed = 5"}),
              HasSubstr("train.batch is \"1\\nseed = 5\""));
}

TEST(RecipeReader, RefusesHostileTextWithinBounds) {
  EXPECT_THAT(mistake(std::string(kMostRecipeBytes + 1, '#')), HasSubstr("is larger than"));
  EXPECT_THAT(mistake("a = " + std::string(100, '[') + std::string(100, ']')),
              HasSubstr("nested deeper"));
  EXPECT_THAT(mistake("a = " + std::string(100'000, '[')), HasSubstr("recipes/x.toml:1:"));
  std::string many;
  for (int i = 0; i < 500; ++i) {
    many += "key" + std::to_string(i) + " = 1\n";
  }
  EXPECT_THAT(mistake(many), HasSubstr("and 483 more"));
  EXPECT_THAT(mistake("[model]\npath = \"a\\u0000b\"\n"), HasSubstr("model.path is"));
}

TEST(RecipeReader, RefusesUnreadableFile) {
  for (const auto& path :
       {std::filesystem::path("no/such/recipe.toml"), std::filesystem::temp_directory_path()}) {
    try {
      read_recipe(path);
      FAIL() << path;
    } catch (const base::UserError& error) {
      EXPECT_THAT(error.what(), HasSubstr("cannot read the recipe " + path.string()));
    }
  }
}

TEST(RecipeReader, NamesRunAfterFile) {
  const auto file = std::filesystem::path(testing::TempDir()) / "my-run.toml";
  std::ofstream(file) << kLeast;
  EXPECT_EQ(read_recipe(file).name, "my-run");
  std::filesystem::remove(file);
  const auto named = [](const std::string& source) { return parse_recipe(kLeast, source).name; };
  EXPECT_EQ(named("my chat file.toml"), "my-chat-file");
  EXPECT_EQ(named("a--b.toml"), "a--b") << "as it is, where it can be";
  EXPECT_EQ(named("(new) run, 2.toml"), "new-run-2");
  EXPECT_EQ(named(std::string(150, 'a') + ".toml").size(), 100U);
  EXPECT_THAT([&] { named("\xe6\x97\xa5.toml"); },
              testing::ThrowsMessage<base::UserError>(HasSubstr("name is missing (")));
}

}  // namespace
}  // namespace strait::recipe
