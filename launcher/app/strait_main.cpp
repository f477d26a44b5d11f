#include "launcher/app/strait_main.h"

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "launcher/base/build_id.h"
#include "launcher/base/printable_text.h"
#include "launcher/base/failure.h"
#include "launcher/plugin/plugin_file.h"
#include "launcher/app/verb_doctor.h"
#include "launcher/app/verb_init.h"
#include "launcher/app/verb_install.h"
#include "launcher/app/verb_logs.h"
#include "launcher/app/verb_model.h"
#include "launcher/app/verb_probe.h"
#include "launcher/app/verb_replica.h"
#include "launcher/app/verb_run.h"
#include "launcher/app/verb_slurm.h"
#include "launcher/app/verb_status.h"
#include "launcher/app/verb_stop.h"
#include "launcher/app/verb_watch.h"

namespace strait::app {
namespace {

// What the command line asked for: set by the verb that was given.
using Order = std::function<base::ExitCode()>;

void add_status(CLI::App& app, Order& order) {
  struct Words {
    std::string run;
    bool json = false;
  };
  const auto words = std::make_shared<Words>();
  CLI::App* verb = app.add_subcommand("status", "what a run does now, or how it ended");
  verb->add_option("run", words->run, "its directory, runs/NAME")->required();
  verb->add_flag("--json", words->json, "for programs");
  verb->callback([words, &order] {
    order = [words] { return show_status(words->run, words->json); };
  });
}

void add_watch(CLI::App& app, Order& order) {
  const auto run = std::make_shared<std::string>();
  CLI::App* verb = app.add_subcommand("watch", "a picture of a run that keeps up with it");
  verb->add_option("run", *run, "its directory, runs/NAME")->required();
  verb->callback([run, &order] { order = [run] { return watch_run(*run); }; });
}

void add_logs(CLI::App& app, Order& order) {
  const auto words = std::make_shared<LogWords>();
  CLI::App* verb = app.add_subcommand("logs", "what the processes of a run wrote");
  verb->add_option("run", words->run, "its directory, runs/NAME")->required();
  verb->add_option("process", words->process, "one, such as 1.0; else all, by time");
  verb->add_flag("-f,--follow", words->follow, "go on until the run is over");
  verb->add_option("--last", words->last, "begin with so many lines; 0: with all");
  verb->callback(
      [words, &order] { order = [words] { return show_logs(*words); }; });
}

void add_stop(CLI::App& app, Order& order) {
  struct Words {
    std::string run;
    bool now = false;
    std::optional<std::uint32_t> replica;
    int patience = 600;
  };
  const auto words = std::make_shared<Words>();
  CLI::App* verb = app.add_subcommand("stop", "end a live run: finish the step, save, leave");
  verb->add_option("run", words->run, "its directory, runs/NAME")->required();
  verb->add_flag("--now", words->now, "leave at once; what is not saved is lost");
  verb->add_option("--replica", words->replica,
                   "only this replica leaves, and the others go on (sync.on_loss = \"continue\")")
      ->excludes("--now");
  verb->add_option("--patience", words->patience, "seconds to wait for its end")
      ->check(CLI::Range(1, 86'400))
      ->capture_default_str();
  verb->callback([words, &order] {
    order = [words] {
      const std::chrono::seconds patience(words->patience);
      if (words->replica) {
        return stop_replica(words->run, *words->replica, patience);
      }
      return stop_run(words->run, words->now, patience);
    };
  });
}

void add_init(CLI::App& app, Order& order) {
  struct Words {
    std::string file;
    std::string example = "quickstart";
    bool keys = false;
  };
  const auto words = std::make_shared<Words>();
  CLI::App* verb = app.add_subcommand("init", "copy an example recipe to begin from");
  verb->add_option("file", words->file, "the new recipe")->required();
  verb->add_option("--from", words->example, "which example")->capture_default_str();
  verb->add_flag("--keys", words->keys, "write every key with its default and meaning instead");
  verb->callback([words, &order] {
    order = [words] {
      return words->keys ? write_all_keys(words->file)
                         : copy_example(words->example, words->file);
    };
  });
}

void add_run_words(CLI::App* verb, const std::shared_ptr<RunWords>& words) {
  verb->add_option("--set", words->overrides, "key=value instead of the recipe's; repeatable")
      ->take_all()
      ->allow_extra_args(false);
  verb->add_flag("--json", words->json, "for programs");
}

CLI::Option* add_without(CLI::App* verb, const std::shared_ptr<RunWords>& words) {
  return verb
      ->add_option("--without", words->without,
                   "begin without this replica, which `strait resume RUN --replica` adds later "
                   "(sync.on_loss = \"continue\"); repeatable")
      ->take_all()
      ->allow_extra_args(false);
}

void add_plan(CLI::App& app, Order& order) {
  const auto words = std::make_shared<RunWords>();
  const auto emit = std::make_shared<std::string>();
  CLI::App* verb = app.add_subcommand("plan", "what a recipe would run where; starts nothing");
  verb->add_option("recipe", words->recipe, "a recipe file")->required();
  add_run_words(verb, words);
  static const std::map<std::string, EmitKind> kKinds = {{"sbatch", EmitKind::sbatch},
                                                         {"commands", EmitKind::commands},
                                                         {"kubernetes", EmitKind::kubernetes}};
  verb->add_option("--emit", *emit, "print what to launch it with yourself instead")
      ->check(CLI::IsMember(&kKinds));
  verb->callback([words, emit, &order] {
    order = [words, emit] {
      return emit->empty() ? show_plan(*words)
                           : emit_plan(*words, kKinds.at(*emit));
    };
  });
}

void add_probe(CLI::App& app, Order& order) {
  const auto words = std::make_shared<ProbeWords>();
  CLI::App* verb = app.add_subcommand("probe", "measure the hosts of a recipe and their links");
  verb->add_option("recipe", words->recipe, "a recipe file")->required();
  verb->add_option("-o,--out", words->out, "the table that hosts.links names")
      ->capture_default_str();
  verb->add_option("--seconds", words->seconds, "of each measurement of bandwidth")
      ->check(CLI::Range(0.1, 20.0))
      ->capture_default_str();
  verb->add_option("--set", words->overrides, "key=value instead of the recipe's; repeatable");
  verb->callback([words, &order] { order = [words] { return probe(*words); }; });
}

void add_doctor(CLI::App& app, Order& order) {
  const auto words = std::make_shared<RunWords>();
  CLI::App* verb = app.add_subcommand("doctor", "look at all that a recipe needs; starts nothing");
  verb->add_option("recipe", words->recipe, "a recipe file")->required();
  add_run_words(verb, words);
  verb->callback(
      [words, &order] { order = [words] { return examine(*words); }; });
}

void add_install(CLI::App& app, Order& order) {
  const auto words = std::make_shared<RunWords>();
  CLI::App* verb = app.add_subcommand("install", "bring this build to the hosts of a recipe");
  verb->add_option("--hosts", words->recipe, "the recipe that lists them")->required();
  verb->add_option("--set", words->overrides, "key=value instead of the recipe's; repeatable")
      ->take_all()
      ->allow_extra_args(false);
  verb->callback(
      [words, &order] { order = [words] { return install_on_hosts(*words); }; });
}

void add_run(CLI::App& app, Order& order) {
  const auto words = std::make_shared<RunWords>();
  CLI::App* verb = app.add_subcommand("run", "fine-tune as a recipe says");
  verb->add_option("recipe", words->recipe, "a recipe file")->required();
  add_run_words(verb, words);
  verb->add_flag("--replace", words->replace, "move an earlier run of that name aside");
  add_without(verb, words);
  verb->callback(
      [words, &order] { order = [words] { return run_recipe(*words); }; });
}

// Called by the scripts of Slurm jobs, and not by people.
void add_run_allocated(CLI::App& app, Order& order) {
  const auto run = std::make_shared<std::string>();
  CLI::App* verb = app.add_subcommand("run-allocated", "run in the Slurm job that this is");
  verb->group("");
  verb->add_option("run", *run, "its directory, runs/NAME")->required();
  verb->callback(
      [run, &order] { order = [run] { return run_allocated(*run, false); }; });
}

void add_resume(CLI::App& app, Order& order) {
  struct Replica {
    std::optional<std::uint32_t> number;
    int patience = 600;
  };
  const auto words = std::make_shared<RunWords>();
  const auto replica = std::make_shared<Replica>();
  CLI::App* verb = app.add_subcommand("resume", "go on from the newest checkpoint of a run");
  verb->add_option("run", words->recipe, "its directory, runs/NAME")->required();
  add_run_words(verb, words);
  CLI::Option* one = verb->add_option(
      "--replica", replica->number,
      "the run is live: this replica, which takes no part, comes (sync.on_loss = \"continue\")");
  one->excludes(add_without(verb, words));
  verb->add_option("--patience", replica->patience, "with it: seconds to wait for that")
      ->needs(one)
      ->check(CLI::Range(1, 86'400))
      ->capture_default_str();
  verb->callback([words, replica, &order] {
    order = [words, replica] {
      if (!replica->number) return resume_run(*words);
      return resume_replica(words->recipe, *replica->number,
                                              std::chrono::seconds(replica->patience));
    };
  });
}

void add_generate(CLI::App& app, Order& order) {
  const auto words = std::make_shared<GenerateWords>();
  CLI::App* verb = app.add_subcommand("generate", "let a trained model continue a prompt");
  verb->add_option("run", words->run, "its directory, runs/NAME")->required();
  verb->add_option("--prompt", words->prompt, "what it continues")->required();
  verb->add_option("--max-tokens", words->most_tokens, "at most")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  verb->add_option("--temperature", words->temperature, "0 always takes the likeliest token")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  verb->add_option("--top-k", words->top_k, "sample among this many; 0: among all")
      ->check(CLI::Range(0, 10'000'000))
      ->capture_default_str();
  verb->add_option("--seed", words->seed, "of sampling")->capture_default_str();
  verb->callback(
      [words, &order] { order = [words] { return generate(*words); }; });
}

void add_eval(CLI::App& app, Order& order) {
  struct Words {
    std::string run;
    std::string data;
    bool json = false;
  };
  const auto words = std::make_shared<Words>();
  CLI::App* verb = app.add_subcommand("eval", "the loss of a trained model");
  verb->add_option("run", words->run, "its directory, runs/NAME")->required();
  verb->add_option("--data", words->data, "instead of the recipe's data.eval");
  verb->add_flag("--json", words->json, "for programs");
  verb->callback([words, &order] {
    order = [words] { return evaluate(words->run, words->data, words->json); };
  });
}

void add_export(CLI::App& app, Order& order) {
  struct Words {
    std::string run;
    std::string directory;
  };
  const auto words = std::make_shared<Words>();
  CLI::App* verb = app.add_subcommand("export", "a Hugging Face directory of a trained model");
  verb->add_option("run", words->run, "its directory, runs/NAME")->required();
  verb->add_option("directory", words->directory, "a new one")->required();
  verb->callback([words, &order] {
    order = [words] { return export_model(words->run, words->directory); };
  });
}

void add_prepare(CLI::App& app, Order& order) {
  struct Words {
    std::string data;
    std::string file;
    std::int64_t row = 128;
  };
  const auto words = std::make_shared<Words>();
  CLI::App* verb = app.add_subcommand("prepare", "pack text or JSONL into a token file");
  verb->add_option("data", words->data, "text or JSONL")->required();
  verb->add_option("file", words->file, "the token file, NAME.safetensors")->required();
  verb->add_option("--row", words->row, "tokens of a row")
      ->check(CLI::Range(2, 1 << 24))
      ->capture_default_str();
  verb->callback([words, &order] {
    order = [words] { return prepare(words->data, words->file, words->row); };
  });
}

}  // namespace
}  // namespace strait::app

int strait::strait_main(int argc, char** argv, OfferParts offer) {
  CLI::App cli("strait fine-tunes a transformer that is split over machines joined by slow links.");
  cli.set_version_flag("--version", std::string("strait ") + base::build_id());
  cli.require_subcommand(0, 1);  // none: told below, so that a misspelt verb is named first
  app::Order order;
  app::add_init(cli, order);
  app::add_prepare(cli, order);
  app::add_plan(cli, order);
  app::add_probe(cli, order);
  app::add_doctor(cli, order);
  app::add_install(cli, order);
  app::add_run(cli, order);
  app::add_run_allocated(cli, order);
  app::add_resume(cli, order);
  app::add_status(cli, order);
  app::add_watch(cli, order);
  app::add_logs(cli, order);
  app::add_stop(cli, order);
  app::add_eval(cli, order);
  app::add_generate(cli, order);
  app::add_export(cli, order);
  try {
    cli.parse(argc, argv);
    plugin::offer_own_parts(offer);
    if (!order) throw CLI::RequiredError("a verb");
    return number(order());
  } catch (const CLI::ParseError& error) {
    const int code = cli.exit(error);  // help and version are "errors" too, with code 0
    return code == 0 ? 0 : number(base::ExitCode::bad_input);
  } catch (const std::exception& error) {
    const base::Failure failure = base::describe_failure(error);
    std::fprintf(stderr, "strait: %s\n", base::printable_lines(failure.text).c_str());
    return number(failure.code);
  }
}
