
#include <cstdlib>
#include <iostream>
#include <numeric>

#include "framework/data/data_preparation.h"
#include "framework/data/record_reader.h"
#include "framework/data/tokenizer.h"
#include "launcher/cli/command_line.h"
#include "launcher/cli/verbs.h"
#include "launcher/recipe/recipe_keys.h"
#include "launcher/tokenizer/tokenizer_worker.h"

namespace strait::cli {
namespace {

namespace fs = std::filesystem;

struct PrepareFlags {
  std::string data;
  std::string file;  // empty: only the cache is filled
  std::string model;
  std::string targets = "assistant";
  std::string chat_template = "own";
  std::string too_long = "refuse";
  std::string packing = "first_fit";
  std::int64_t row = 128;
  std::int64_t overlap = 0;
  std::int64_t shown = 0;
  double shard_gigabytes = 5;
};

template <class Enum>
Enum named(const std::string& name) {
  const auto names = recipe::all_names(Enum{});
  return static_cast<Enum>(std::ranges::find(names, name) - names.begin());
}

template <class Enum>
void add_choice(CLI::App& verb, const char* flag, std::string& value, const char* help) {
  const auto names = recipe::all_names(Enum{});
  verb.add_option(flag, value, help)
      ->check(CLI::IsMember(std::vector<std::string>(names.begin(), names.end())))
      ->capture_default_str();
}

// On a terminal, unless the user wants none (https://no-color.org).
bool shows_colours() {
  const char* const none = std::getenv("NO_COLOR");
  return isatty(STDOUT_FILENO) != 0 && (none == nullptr || *none == '\0');
}

// A record's text, the targets green or in [[ ]].
void print_document(data::Document document, bool first, tokenizer::TokenizerWorker* worker) {
  // Nothing stands before a text's first token that could predict it.
  if (first && !document.is_target.empty()) document.is_target.front() = 0;
  const bool colours = shows_colours();
  const auto learnt = std::accumulate(document.is_target.begin(), document.is_target.end(), 0);
  std::cout << fmt::format("--- {}: {}, {} of them targets\n", document.origin,
                           base::counted(std::ssize(document.tokens), "token"), learnt);
  const std::span<const std::int32_t> tokens(document.tokens);
  for (std::size_t from = 0; from < tokens.size();) {
    std::size_t to = from;
    while (to < tokens.size() && document.is_target[to] == document.is_target[from]) ++to;
    const auto part = tokens.subspan(from, to - from);
    const std::string text = base::printable_lines(
        worker == nullptr ? data::ByteTokenizer::decode(part) : worker->decode_all(part));
    if (document.is_target[from] == 0) {
      std::cout << text;
    } else {
      std::cout << (colours ? "\033[32m" : "[[") << text << (colours ? "\033[0m" : "]]");
    }
    from = to;
  }
  std::cout << '\n';
}

// Empty: the tokenizer's own.
std::string template_of(const PrepareFlags& flags) {
  const bool own = named<recipe::ChatTemplate>(flags.chat_template) == recipe::ChatTemplate::own;
  return own ? "" : flags.chat_template;
}

void show_records(const PrepareFlags& flags, const data::DataOptions& options) {
  std::unique_ptr<tokenizer::TokenizerWorker> worker;
  if (options.tokenizer != "bytes") {
    worker = std::make_unique<tokenizer::TokenizerWorker>(options.tokenizer, template_of(flags));
  }
  data::RecordReader reader(flags.data, tokenizer::PythonTokenizers());
  for (std::int64_t i = 0; i < flags.shown; ++i) {
    auto record = reader.next();
    if (!record) return;
    if (worker == nullptr) {
      choose_targets(*record, options.targets);
      print_document(data::ByteTokenizer::document(*record), record->first, nullptr);
    } else {
      const data::Record one = *record;
      print_document(worker->documents(std::span(&one, 1), options.targets).front(), one.first,
                     worker.get());
    }
  }
}

// NAME-00002-of-00003.safetensors, as shards of models are called.
std::string shard_name(const fs::path& file, std::int64_t number, std::int64_t count) {
  return (file.parent_path() /
          fmt::format("{}-{:05}-of-{:05}.safetensors", file.stem().string(), number + 1, count))
      .string();
}

// The token files: one, or as many as the largest size of a file makes necessary.
std::vector<std::string> write_files(const PrepareFlags& flags,
                                     const data::PreparedData& prepared) {
  if (flags.file.empty()) return {};
  constexpr double kBytesOfToken = 9;
  const double bytes_of_row = kBytesOfToken * static_cast<double>(flags.row);
  const auto most = std::max<std::int64_t>(
      1, static_cast<std::int64_t>(flags.shard_gigabytes * 1e9 / bytes_of_row));
  const std::int64_t rows = prepared.tokens->rows();
  const std::int64_t count = (rows + most - 1) / most;
  if (count == 1) {
    data::place_data(prepared, flags.file);
    return {flags.file};
  }
  std::vector<std::string> files;
  for (std::int64_t i = 0; i < count; ++i) {
    files.push_back(shard_name(flags.file, i, count));
    data::write_token_file(files.back(), *prepared.tokens, data::metadata_of(prepared), i * most,
                           std::min(most, rows - i * most));
  }
  return files;
}

void print_summary(const PrepareFlags& flags, const data::PreparedData& prepared) {
  const data::TokenFile& rows = *prepared.tokens;
  std::int64_t tokens = 0;
  std::int64_t learnt = 0;
  for (std::int64_t row = 0; row < rows.rows(); ++row) {
    const store::SampleId sample{row};
    tokens += rows.length(sample);
    learnt += std::ssize(rows.targets(sample));
  }
  const std::int64_t padding = rows.rows() * rows.row_length() - tokens;
  std::cout << fmt::format(
      "{}: {} of {} tokens, {}, {} padding ({:.1f} %){}\n",
      flags.file.empty() ? flags.data : flags.file, base::counted(rows.rows(), "row"), flags.row,
      base::counted(learnt, "target"), padding,
      100.0 * static_cast<double>(padding) / static_cast<double>(padding + tokens),
      prepared.cached ? " (from the cache)" : "");
}

base::ExitCode prepare(const PrepareFlags& flags) {
  if (flags.overlap >= flags.row) {
    throw base::UserError(base::ExitCode::bad_input,
                          "--overlap is {}, but must be less than --row, {}", flags.overlap,
                          flags.row);
  }
  if (fs::path(flags.data).extension() == ".safetensors") {
    throw base::UserError(base::ExitCode::bad_input, flags.data + " is a token file already");
  }
  if (!flags.file.empty() && fs::path(flags.file).extension() != ".safetensors") {
    throw base::UserError(
        base::ExitCode::bad_input,
        "{} would be replaced by tokens: the second file is the one to write, and its "
        "name must end in .safetensors; prepare one file of data at a time",
        flags.file);
  }
  data::DataOptions options;
  options.rows = {flags.row, named<data::TooLong>(flags.too_long),
                  named<data::Packing>(flags.packing), flags.overlap};
  options.targets = named<data::Targets>(flags.targets);
  if (!flags.model.empty()) options.tokenizer = flags.model;
  if (options.tokenizer == data::kByteTokenizer && !template_of(flags).empty()) {
    throw base::UserError(base::ExitCode::bad_input,
                          "--chat-template is {}, but bytes render messages without a template; "
                          "name a tokenizer with --model DIRECTORY",
                          flags.chat_template);
  }
  options.rows.remedy = "make --row longer, or add --too-long drop, truncate or split";
  if (flags.shown > 0) show_records(flags, options);
  const data::PreparedData prepared =
      data::read_data({{flags.data}}, options, tokenizer::PythonTokenizers(template_of(flags)));
  const std::vector<std::string> files = write_files(flags, prepared);
  print_summary(flags, prepared);
  for (const std::string& note : prepared.notes) std::cout << note << '\n';
  for (const std::string& removed : prepared.removed) std::cout << removed << '\n';
  if (files.size() > 1) {
    std::cout << fmt::format("data.train = [\"{}\"]\n", fmt::join(files, "\", \""));
  }
  return base::ExitCode::done;
}

}  // namespace

void add_prepare(CLI::App& cli, Command& command) {
  const auto flags = std::make_shared<PrepareFlags>();
  CLI::App* verb =
      cli.add_subcommand("prepare", "make tokens of text, JSONL or Parquet, and look at them");
  verb->add_option("data", flags->data, "text, JSONL or Parquet")->required();
  verb->add_option("file", flags->file,
                   "a token file to write, NAME.safetensors; absent: only the cache is filled");
  verb->add_option("--model,--tokenizer", flags->model,
                   "a directory with tokenizer.json; absent: bytes");
  verb->add_option("--row", flags->row, "tokens of a row")
      ->check(CLI::Range(std::int64_t{2}, recipe::kLongestRow))
      ->capture_default_str();
  add_choice<recipe::ChatTemplate>(*verb, "--chat-template", flags->chat_template,
                                   "how messages become text; own: by the tokenizer's directory");
  add_choice<data::Targets>(*verb, "--targets", flags->targets, "what of a record is learnt");
  add_choice<data::TooLong>(*verb, "--too-long", flags->too_long, "records longer than a row");
  add_choice<data::Packing>(*verb, "--packing", flags->packing, "of records into rows");
  verb->add_option("--overlap", flags->overlap, "tokens of context in further rows of a long text")
      ->check(CLI::Range(std::int64_t{0}, recipe::kLongestRow - 1));
  verb->add_option("--shard-gb", flags->shard_gigabytes, "the most that a token file holds")
      ->check(number_range(1e-6, 1e6))
      ->capture_default_str();
  verb->add_option("--show", flags->shown, "print this many records, with what is learnt")
      ->check(CLI::Range(0, 1'000'000));
  verb->callback([flags, &command] { command.run = [flags] { return prepare(*flags); }; });
}

}  // namespace strait::cli
