#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <string>

#include "launcher/build_id.h"
#include "launcher/console/printable_text.h"
#include "launcher/failure.h"
#include "launcher/verbs/verb_init.h"
#include "launcher/verbs/verb_model.h"
#include "launcher/verbs/verb_run.h"
#include "launcher/verbs/verb_status.h"
#include "launcher/verbs/verb_stop.h"

namespace {

using strait::launcher::ExitCode;
using strait::launcher::GenerateWords;
using strait::launcher::RunWords;

// What the command line asked for: set by the verb that was given.
using Order = std::function<ExitCode()>;

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
    order = [words] { return strait::launcher::show_status(words->run, words->json); };
  });
}

void add_stop(CLI::App& app, Order& order) {
  struct Words {
    std::string run;
    bool now = false;
    int patience = 600;
  };
  const auto words = std::make_shared<Words>();
  CLI::App* verb = app.add_subcommand("stop", "end a live run: finish the step, save, leave");
  verb->add_option("run", words->run, "its directory, runs/NAME")->required();
  verb->add_flag("--now", words->now, "leave at once; what is not saved is lost");
  verb->add_option("--patience", words->patience, "seconds to wait for its end")
      ->check(CLI::Range(1, 86'400))
      ->capture_default_str();
  verb->callback([words, &order] {
    order = [words] {
      return strait::launcher::stop_run(words->run, words->now,
                                        std::chrono::seconds(words->patience));
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
      return words->keys ? strait::launcher::write_all_keys(words->file)
                         : strait::launcher::copy_example(words->example, words->file);
    };
  });
}

void add_run_words(CLI::App* verb, const std::shared_ptr<RunWords>& words) {
  verb->add_option("--set", words->overrides, "key=value instead of the recipe's; repeatable")
      ->take_all()
      ->allow_extra_args(false);
  verb->add_flag("--json", words->json, "for programs");
}

void add_plan(CLI::App& app, Order& order) {
  const auto words = std::make_shared<RunWords>();
  CLI::App* verb = app.add_subcommand("plan", "what a recipe would run where; starts nothing");
  verb->add_option("recipe", words->recipe, "a recipe file")->required();
  add_run_words(verb, words);
  verb->callback(
      [words, &order] { order = [words] { return strait::launcher::show_plan(*words); }; });
}

void add_run(CLI::App& app, Order& order) {
  const auto words = std::make_shared<RunWords>();
  CLI::App* verb = app.add_subcommand("run", "fine-tune as a recipe says");
  verb->add_option("recipe", words->recipe, "a recipe file")->required();
  add_run_words(verb, words);
  verb->add_flag("--replace", words->replace, "move an earlier run of that name aside");
  verb->callback(
      [words, &order] { order = [words] { return strait::launcher::run_recipe(*words); }; });
}

void add_resume(CLI::App& app, Order& order) {
  const auto words = std::make_shared<RunWords>();
  CLI::App* verb = app.add_subcommand("resume", "go on from the newest checkpoint of a run");
  verb->add_option("run", words->recipe, "its directory, runs/NAME")->required();
  add_run_words(verb, words);
  verb->callback(
      [words, &order] { order = [words] { return strait::launcher::resume_run(*words); }; });
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
      [words, &order] { order = [words] { return strait::launcher::generate(*words); }; });
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
    order = [words] { return strait::launcher::evaluate(words->run, words->data, words->json); };
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
    order = [words] { return strait::launcher::export_model(words->run, words->directory); };
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
    order = [words] { return strait::launcher::prepare(words->data, words->file, words->row); };
  });
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("strait fine-tunes a transformer that is split over machines joined by slow links.");
  app.set_version_flag("--version", std::string("strait ") + strait::launcher::build_id());
  app.require_subcommand(0, 1);  // none: told below, so that a misspelt verb is named first
  Order order;
  add_init(app, order);
  add_prepare(app, order);
  add_plan(app, order);
  add_run(app, order);
  add_resume(app, order);
  add_status(app, order);
  add_stop(app, order);
  add_eval(app, order);
  add_generate(app, order);
  add_export(app, order);
  try {
    app.parse(argc, argv);
    if (!order) throw CLI::RequiredError("a verb");
    return number(order());
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);  // help and version are "errors" too, with code 0
    return code == 0 ? 0 : number(ExitCode::bad_input);
  } catch (const std::exception& error) {
    const strait::launcher::Failure failure = strait::launcher::describe_failure(error);
    std::fprintf(stderr, "strait: %s\n", strait::launcher::printable_lines(failure.text).c_str());
    return number(failure.code);
  }
}
