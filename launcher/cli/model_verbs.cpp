#include "launcher/cli/command_line.h"
#include "launcher/cli/verbs.h"

namespace strait::cli {
namespace {

void add_tokenizer(CLI::App* verb, std::string& tokenizer) {
  verb->add_option("--tokenizer", tokenizer, "a directory, or bytes; else the run's own");
}

void add_which_checkpoint(CLI::App* verb, std::string& which) {
  verb->add_option("--checkpoint", which,
                   "newest, best (the lowest evaluation loss), or the step of one")
      ->capture_default_str();
}

void add_sampling(CLI::App* verb, GenerationOptions& options) {
  run::Sampling& sampling = options.sampling;
  verb->add_option("--max-tokens", options.max_tokens, "at most")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  verb->add_option("--temperature", sampling.temperature, "0 always takes the likeliest token")
      ->check(number_range(0.0, 100.0))
      ->capture_default_str();
  verb->add_option("--top-k", sampling.top_k, "sample among this many; 0: among all")
      ->check(CLI::Range(0, 10'000'000))
      ->capture_default_str();
  verb->add_option("--top-p", sampling.top_p,
                   "among the likeliest that have this probability together")
      ->check(number_range(1e-6, 1.0))
      ->capture_default_str();
  verb->add_option("--min-p", sampling.min_p, "among those with this share of the likeliest's")
      ->check(number_range(0.0, 1.0))
      ->capture_default_str();
  verb->add_option("--repetition-penalty", sampling.repetition_penalty,
                   "above 1: tokens that were there become less likely")
      ->check(number_range(0.01, 100.0))
      ->capture_default_str();
  verb->add_option("--seed", sampling.seed, "of sampling")
      ->check(up_to(std::numeric_limits<std::int64_t>::max()))
      ->capture_default_str();
}

void add_place(CLI::App* verb, Place& place) {
  // A transformer over the enum would take its numbers, too.
  const std::map<std::string, Place> places = {
      {"auto", Place::automatic}, {"here", Place::here}, {"hosts", Place::hosts}};
  verb->add_option_function<std::string>(
          "--on", [places, &place](const std::string& name) { place = places.at(name); },
          "here: in this process; hosts: over the run's stages; auto: here if the model fits into "
          "memory")
      ->check(CLI::IsMember({"auto", "here", "hosts"}))
      ->default_str("auto");
}

void add_cache(CLI::App* verb, std::int64_t& bits) {
  verb->add_option_function<std::string>(
          "--cache", [&bits](const std::string& name) { bits = name == "int8" ? 8 : 32; },
          "how keys and values are kept: int8 takes about a quarter of the memory of float32, and "
          "rounds them")
      ->check(CLI::IsMember({"float32", "int8"}))
      ->default_str("float32");
}

CLI::App* add_part(CLI::App* verb, const char* name, const char* text,
                   const std::shared_ptr<CheckpointFlags>& flags) {
  CLI::App* part = verb->add_subcommand(name, text);
  add_run_argument(part, flags->run)->required();
  return part;
}

void add_step(CLI::App* part, const std::shared_ptr<CheckpointFlags>& flags, const char* text) {
  part->add_option("--step", flags->step, text)->check(up_to(kMostSteps));
}

void on_parsed(CLI::App* part, const std::shared_ptr<CheckpointFlags>& flags,
               CheckpointFlags::Part asked, Command& command) {
  part->callback([flags, asked, &command] {
    flags->part = asked;
    command.compute = *flags;
  });
}

}  // namespace

void add_eval(CLI::App& cli, Command& command) {
  const auto flags = std::make_shared<EvalFlags>();
  CLI::App* verb = cli.add_subcommand("eval", "the loss of a trained model");
  add_run_argument(verb, flags->run)->required();
  verb->add_option("--data", flags->data, "instead of the recipe's data.eval");
  add_tokenizer(verb, flags->tokenizer);
  verb->add_flag("--json", flags->json, "machine-readable output");
  add_which_checkpoint(verb, flags->checkpoint);
  add_place(verb, flags->place);
  verb->callback([flags, &command] { command.compute = *flags; });
}

void add_generate(CLI::App& cli, Command& command) {
  const auto flags = std::make_shared<GenerateFlags>();
  GenerationOptions& options = flags->options;
  CLI::App* verb = cli.add_subcommand("generate", "continue prompts with a trained model");
  add_run_argument(verb, flags->run)->required();
  CLI::Option_group* what = verb->add_option_group("prompts", "what is continued");
  what->add_option("--prompt", flags->prompt, "a text, whose continuation appears as it is made");
  what->add_option("--prompts", flags->prompts,
                   "a file with {\"prompt\": ...} or {\"messages\": [...]} in every line; prints "
                   "a JSON object for each, in their order");
  what->require_option(1);
  verb->add_option("--batch", flags->batch,
                   "prompts of a file in progress at the same time; each needs memory for its keys "
                   "and values")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  add_sampling(verb, options);
  verb->add_option("--stop", options.stops, "ends before this text or control token; repeatable")
      ->take_all()
      ->allow_extra_args(false);
  add_tokenizer(verb, flags->tokenizer);
  verb->add_flag("--chat", flags->chat,
                 "the prompt is what a user says, in the tokenizer's chat template");
  add_which_checkpoint(verb, flags->checkpoint);
  add_place(verb, flags->place);
  add_cache(verb, flags->cache_bits);
  verb->callback([flags, &command] { command.compute = *flags; });
}

void add_chat(CLI::App& cli, Command& command) {
  const auto flags = std::make_shared<ChatFlags>();
  CLI::App* verb = cli.add_subcommand("chat", "chat with a trained model in the terminal");
  add_run_argument(verb, flags->run)->required();
  flags->options.max_tokens = 512;
  add_sampling(verb, flags->options);
  add_tokenizer(verb, flags->tokenizer);
  add_which_checkpoint(verb, flags->checkpoint);
  add_place(verb, flags->place);
  add_cache(verb, flags->cache_bits);
  verb->callback([flags, &command] { command.compute = *flags; });
}

void add_serve(CLI::App& cli, Command& command) {
  const auto flags = std::make_shared<ServeFlags>();
  CLI::App* verb = cli.add_subcommand(
      "serve", "answer requests of OpenAI's clients on this machine, for evaluations");
  add_run_argument(verb, flags->run)->required();
  verb->add_option("--port", flags->port, "of 127.0.0.1; 0: any that is free")
      ->check(CLI::Range(0, 65'535))
      ->capture_default_str();
  verb->add_option("--batch", flags->batch, "prompts in progress at the same time")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  add_tokenizer(verb, flags->tokenizer);
  add_which_checkpoint(verb, flags->checkpoint);
  add_place(verb, flags->place);
  add_cache(verb, flags->cache_bits);
  verb->callback([flags, &command] { command.compute = *flags; });
}

void add_export(CLI::App& cli, Command& command) {
  const auto flags = std::make_shared<ExportFlags>();
  CLI::App* verb = cli.add_subcommand("export", "a Hugging Face directory of a trained model");
  add_run_argument(verb, flags->run)->required();
  verb->add_option("directory", flags->directory, "a new one")->required();
  verb->add_option("--dtype", flags->type, "instead of the value types of the source's files")
      ->check(CLI::IsMember({"float32", "bfloat16", "float16"}));
  verb->add_flag("--merge", flags->merge, "of a LoRA run: the whole model, adapters added");
  verb->add_option("--shard-gb", flags->shard_gigabytes, "the most that a file holds")
      ->check(number_range(1e-6, 1e6))
      ->capture_default_str();
  add_which_checkpoint(verb, flags->checkpoint);
  verb->callback([flags, &command] { command.compute = *flags; });
}

void add_checkpoint(CLI::App& cli, Command& command) {
  const auto flags = std::make_shared<CheckpointFlags>();
  CLI::App* verb = cli.add_subcommand("checkpoint", "look at, verify, copy, remove checkpoints");
  verb->require_subcommand(1);

  CLI::App* list = add_part(verb, "list", "what was saved when, and where it is", flags);
  list->add_flag("--json", flags->json, "machine-readable output");
  on_parsed(list, flags, CheckpointFlags::Part::list, command);

  CLI::App* verify = add_part(
      verb, "verify", "compare every byte with its hash; ends with 32 where one is wrong", flags);
  add_step(verify, flags, "only this one");
  on_parsed(verify, flags, CheckpointFlags::Part::verify, command);

  CLI::App* copy = add_part(
      verb, "copy", "one checkpoint as a run of its own, which resume and export read", flags);
  copy->add_option("folder", flags->target, "a new one")->required();
  add_step(copy, flags, "instead of the newest");
  on_parsed(copy, flags, CheckpointFlags::Part::copy, command);

  CLI::App* prune =
      add_part(verb, "prune", "remove all checkpoints except those that a rule keeps", flags);
  prune->add_option("--keep", flags->rule.keep, "how many of the newest complete ones stay")
      ->required()
      ->check(CLI::Range(1, 1'000'000));
  prune->add_option("--every", flags->rule.every, "and those whose step is a multiple of this")
      ->check(CLI::Range(std::int64_t{1}, kMostSteps));
  prune->add_flag("--dry-run", flags->rule.dry_run, "only say what would be removed");
  on_parsed(prune, flags, CheckpointFlags::Part::prune, command);
}

}  // namespace strait::cli
