#pragma once

#include "launcher/cli/run_options.h"
#include "launcher/run/inference.h"

// What verbs are asked that need libtorch. Their flags are read here, by a program without it; what
// they do is in launcher/compute, a function for each of these.
namespace strait::cli {

struct PlanFlags {
  RunOptions run;
  bool fit = false;
  std::optional<double> megabits;    // with `fit`: what the line of a host carries
  std::string emit;                  // "commands": those for hosts that join by a token
  std::vector<std::string> changes;  // --what-if
};

struct ProbeFlags {
  RunOptions run;
  std::string out = "links.toml";
  double seconds = 4;  // of each measurement of bandwidth
};

struct DoctorFlags {
  RunOptions run;  // without a recipe: this machine alone
};

// Its recipe may name parts of plugins.
struct InstallFlags {
  RunOptions run;
  std::filesystem::path other_build;  // empty: where it is usual
};

struct RunFlags {
  RunOptions run;
};

struct ResumeFlags {
  RunOptions run;
};

// What the verbs share that ask a trained model.

// Which checkpoint: "newest", "best" (that with the lowest evaluation loss, of those that are
// here), or a step.
inline constexpr const char* kNewest = "newest";

// Where a trained model is asked: in this process, or over the stages of its run on its hosts.
enum class Place { automatic, here, hosts };

struct GenerationOptions {
  std::int64_t max_tokens = 128;
  run::Sampling sampling;
  std::vector<std::string> stops;  // a text ends before the first of these, texts or control tokens
  bool score = false;              // probabilities of the prompt's tokens and of the answer's
  // Chance depends on it; absent: on the number among the prompts.
  std::optional<std::int64_t> number;
};

// Which trained model answers, and where it runs.
struct ModelFlags {
  std::filesystem::path run;
  std::string tokenizer;
  std::string checkpoint = kNewest;
  Place place = Place::automatic;
};

struct EvalFlags : ModelFlags {
  std::string data;  // empty: the recipe's data.eval
  bool json = false;
};

// Of verbs that generate.
struct AnswerFlags : ModelFlags {
  std::int64_t cache_bits = 32;  // of keys and values: 32 or 8
};

struct GenerateFlags : AnswerFlags {
  std::string prompt;
  std::filesystem::path prompts;  // instead: a file
  bool chat = false;
  std::size_t batch = 16;
  GenerationOptions options;
};

struct ChatFlags : AnswerFlags {
  GenerationOptions options;
};

struct ServeFlags : AnswerFlags {
  int port = 8000;
  std::size_t batch = 16;
};

struct ExportFlags {
  std::filesystem::path run;
  std::string directory;
  std::string type;  // "float32", "bfloat16", "float16"; empty: that of the source's files
  bool merge = false;
  double shard_gigabytes = 5;
  std::string checkpoint = kNewest;
};

// What `checkpoint prune` keeps, with the newest that is known to be good, and those that
// checkpoint.keep_best keeps.
struct PruneRule {
  std::int64_t keep = 0;                // newest complete ones
  std::optional<std::int64_t> every{};  // and checkpoints whose step is a multiple of this
  bool dry_run = false;
};

struct CheckpointFlags {
  enum class Part { list, verify, copy, prune };
  Part part = Part::list;
  std::filesystem::path run;
  std::string target;
  std::optional<std::int64_t> step;
  PruneRule rule;
  bool json = false;
};

using ComputeRequest =
    std::variant<PlanFlags, ProbeFlags, DoctorFlags, InstallFlags, RunFlags, ResumeFlags, EvalFlags,
                 GenerateFlags, ChatFlags, ServeFlags, ExportFlags, CheckpointFlags>;

}  // namespace strait::cli
