
#include <iostream>

#include "framework/data/chat_record.h"
#include "framework/data/record_reader.h"
#include "framework/utf8.h"
#include "launcher/compute/ask_model.h"
#include "launcher/compute/generation.h"
#include "launcher/compute/sample_prompts.h"
#include "launcher/compute/verbs.h"

namespace strait::compute {
namespace {

// A prompt may be as long as a record.
constexpr fields::JsonLimits kLineLimits{.string_bytes = data::RecordReader::kMaximumLine};

data::Record user_chat(const std::string& text, const std::string& origin) {
  const nlohmann::json chat{
      {"messages", nlohmann::json::array({{{"role", "user"}, {"content", text}}})}};
  return data::prompt_record(chat, chat.dump(), origin);
}

[[noreturn]] void refuse(const std::string& what) {
  throw base::UserError(base::ExitCode::bad_input, what);
}

// One line of a file of prompts.
std::vector<std::int32_t> read_prompt(const std::string& line, const std::string& origin, bool chat,
                                      TextCoder& coder) {
  constexpr const char* kAllowed =
      "expected {\"prompt\": \"text\"} or {\"messages\": [...]} in every line";
  nlohmann::json record;
  try {
    record = fields::parse_bounded_json(line, kLineLimits);
  } catch (const fields::JsonError& error) {
    refuse(fmt::format("{}: {}; this one is not JSON: {}", origin, kAllowed, error.what()));
  }
  if (!record.is_object()) {
    refuse(fmt::format("{}: {}; this one is {}", origin, kAllowed, data::kind_of(record)));
  }
  if (record.contains("messages")) {
    return coder.encode_chat(data::prompt_record(record, line.substr(line.find('{')), origin));
  }
  const auto prompt = record.find("prompt");
  if (prompt == record.end()) {
    refuse(
        fmt::format("{}: {}; this one has neither \"prompt\" nor \"messages\"", origin, kAllowed));
  }
  if (!prompt->is_string()) {
    refuse(fmt::format("{}: \"prompt\" is {} where a string is expected", origin,
                       data::kind_of(*prompt)));
  }
  const auto text = prompt->get<std::string>();
  return chat ? coder.encode_chat(user_chat(text, origin)) : coder.encode(text);
}

std::vector<Prompt> read_prompts(const std::filesystem::path& file, bool chat, TextCoder& coder) {
  constexpr const char* kTakes = "--prompts takes a file with a JSON object in every line";
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored)) {
    refuse(fmt::format("{} is a directory; {}", file.string(), kTakes));
  }
  std::ifstream lines(file);
  if (!lines) refuse(fmt::format("{} cannot be read; {}", file.string(), kTakes));
  std::vector<Prompt> prompts;
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    if (number == 1 && line.starts_with(kByteOrderMark)) line.erase(0, kByteOrderMark.size());
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string origin = fmt::format("{}:{}", file.string(), number);
    std::vector<std::int32_t> tokens = read_prompt(line, origin, chat, coder);
    prompts.push_back({std::move(tokens), origin + ": the prompt"});
  }
  if (lines.bad()) refuse(fmt::format("{} cannot be read to its end", file.string()));
  if (prompts.empty()) refuse(fmt::format("{} holds no prompt; {}", file.string(), kTakes));
  return prompts;
}

const char* end_name(Completion::End end) {
  switch (end) {
    case Completion::End::model:
      return "end of text";
    case Completion::End::stop:
      return "stop";
    case Completion::End::length:
      break;
  }
  return "length";
}

// The text of one prompt appears while it is made. A pipe gets the model's bytes unchanged; on a
// terminal control characters are escaped.
void print_text(Generation& generation) {
  const bool watched = isatty(STDOUT_FILENO) != 0;
  generation.on_text([watched](std::size_t /*prompt*/, const std::string& more) {
    std::cout << (watched ? base::printable_lines(more) : more);
    cli::flush_output();
  });
  generation.on_done([](std::size_t /*prompt*/, const Completion& completion) {
    if (!completion.text.ends_with('\n')) std::cout << '\n';
  });
}

void print_lines(Generation& generation) {
  generation.on_done([](std::size_t prompt, const Completion& completion) {
    const nlohmann::json line{{"number", prompt + 1},
                              {"completion", completion.text},
                              {"tokens", completion.tokens},
                              {"end", end_name(completion.end)}};
    std::cout << line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
    cli::flush_output();
  });
}

// A model that was tuned on chats answers a bare text with anything, and no error says so.
void note_chats(const cli::GenerateFlags& flags, const recipe::Recipe& recipe) {
  if (flags.chat || !flags.prompts.empty() || !trains_on_chats(recipe)) return;
  cli::warn(
      "the run was trained on chats, and this prompt is continued as plain text; add --chat to ask "
      "it as a user does");
}

void note_memory(std::size_t together, std::size_t asked, const InFlight& in_flight) {
  if (together == asked) return;
  cli::warn(fmt::format(
      "{} of {} prompts are in progress at a time, because keys and values may take {} of memory{}",
      together, asked, base::byte_text(in_flight.cache_bytes.value_or(0)),
      in_flight.cache_bits == 8 ? "" : "; with --cache int8 they take about a quarter"));
}

}  // namespace

base::ExitCode perform(const cli::GenerateFlags& flags) {
  // Every text has it at its beginning.
  if (std::ranges::count(flags.options.stops, "") > 0) {
    refuse("--stop is empty, and would end every answer before its first token; name a text");
  }
  const plan::RunFile run = load_run(flags.run);
  const auto coder = make_text_coder(tokenizer_of_run(run, flags.tokenizer), run.plan.recipe);
  note_chats(flags, run.plan.recipe);
  std::vector<Prompt> prompts;
  if (flags.prompts.empty()) {
    const std::string name = "the prompt";
    prompts.push_back({flags.chat ? coder->encode_chat(user_chat(flags.prompt, name))
                                  : coder->encode(flags.prompt),
                       name});
  } else {
    prompts = read_prompts(flags.prompts, flags.chat, *coder);
  }
  // Not before the tokenizer is up and the prompts are read: a live run removes checkpoints.
  const RunCheckpoint source = find_checkpoint(flags.run, flags.checkpoint);
  cli::warn(source.warning);
  const cli::Place place = choose_place(source, flags.place);
  const InFlight in_flight{requests_in_flight(source, place), flags.batch, flags.cache_bits,
                           memory_for_cache(source, place)};
  const std::size_t asked = std::min(flags.batch, prompts.size());
  Generation generation(std::move(prompts), models::describe(source.config), *coder, flags.options,
                        in_flight);
  note_memory(generation.together(), asked, in_flight);
  if (flags.prompts.empty()) {
    print_text(generation);
  } else {
    print_lines(generation);
  }
  return ask_model(flags.run, source, place, generation);
}

}  // namespace strait::compute
