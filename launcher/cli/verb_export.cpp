#include <ATen/core/Tensor.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <iostream>
#include <memory>
#include <string>

#include "launcher/base/errors.h"
#include "launcher/cli/export_model.h"
#include "launcher/cli/number_range.h"
#include "launcher/cli/verbs.h"

namespace strait::cli {

void add_export(CLI::App& cli, Command& command) {
  struct Options {
    std::filesystem::path run;
    std::string directory;
    std::string type;
    double shard_gigabytes = 5;
    bool merge = false;
  };
  const auto options = std::make_shared<Options>();
  CLI::App* verb = cli.add_subcommand("export", "a Hugging Face directory of a trained model");
  add_run_argument(verb, options->run)->required();
  verb->add_option("directory", options->directory, "a new one")->required();
  verb->add_option("--dtype", options->type, "instead of the value types of the source's files")
      ->check(CLI::IsMember({"float32", "bfloat16", "float16"}));
  verb->add_flag("--merge", options->merge, "of a LoRA run: the whole model, adapters added");
  verb->add_option("--shard-gb", options->shard_gigabytes, "the most that a file holds")
      ->check(number_range(1e-6, 1e6))
      ->capture_default_str();
  verb->callback([options, &command] {
    command = [options] {
      ExportOptions how;
      how.merge = options->merge;
      if (options->type == "float32") how.type = at::kFloat;
      if (options->type == "bfloat16") how.type = at::kBFloat16;
      if (options->type == "float16") how.type = at::kHalf;
      how.shard_bytes = static_cast<std::uint64_t>(options->shard_gigabytes * 1e9);
      std::cout << export_model(options->run, options->directory, how);
      return base::ExitCode::done;
    };
  });
}

}  // namespace strait::cli
