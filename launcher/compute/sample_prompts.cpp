#include "launcher/compute/sample_prompts.h"

#include "framework/data/chat_record.h"
#include "framework/data/data_preparation.h"
#include "framework/data/record_reader.h"
#include "framework/store/store_error.h"
#include "launcher/base/text.h"
#include "launcher/compute/ask_model.h"
#include "launcher/compute/generation.h"
#include "launcher/compute/loaded_run.h"
#include "launcher/tokenizer/tokenizer_worker.h"

namespace strait::compute {
namespace {

// Records that are looked at: few of a large file may be held out.
constexpr int kMostRead = 100'000;
// Characters of a prompt within a command, which should fit on a line or two.
constexpr std::size_t kShortPrompt = 100;
constexpr std::size_t kTextWords = 6;

bool is_lines(const data::DataFile& file) { return data::has_records(file.path); }

// Up to the first answer of the assistant's. The pieces of a chat are "role: " and "content\n" in
// turn.
std::optional<SamplePrompt> prompt_of_chat(const data::Record& record) {
  const auto& pieces = record.pieces;
  std::size_t answer = 1;
  while (answer < pieces.size() && !pieces[answer].is_target) answer += 2;
  if (answer < 3 || answer >= pieces.size()) return std::nullopt;
  auto chat = nlohmann::ordered_json::parse(record.chat);
  nlohmann::ordered_json& messages = chat["messages"];
  messages.erase(messages.begin() + static_cast<std::ptrdiff_t>(answer / 2), messages.end());
  const std::string line = chat.dump();
  const auto content = [&](std::size_t at) {
    return pieces[at].text.substr(0, pieces[at].text.size() - 1);
  };
  return SamplePrompt{content(answer - 2), content(answer),
                      data::prompt_record(nlohmann::json::parse(line), line, record.origin)};
}

std::string first_words(const std::string& text) {
  const std::size_t line = text.find_first_not_of(" \r\n\t");
  if (line == text.npos) return "";
  std::size_t end = line;
  for (std::size_t word = 0; word < kTextWords && end != text.npos; ++word) {
    end = text.find_first_of(" \r\n\t", end + 1);
    if (end != text.npos && text[end] != ' ') break;
  }
  return text.substr(line, end == text.npos ? end : end - line);
}

std::optional<SamplePrompt> prompt_of(const data::Record& record) {
  if (!record.chat.empty()) return prompt_of_chat(record);
  if (record.pieces.size() == 1) {
    SamplePrompt text{first_words(record.pieces[0].text), "", {}};
    return text.text.empty() ? std::nullopt : std::optional(std::move(text));
  }
  return SamplePrompt{record.pieces.at(0).text, record.pieces.at(1).text, {}};
}

using Wanted = std::function<bool(const data::Record&)>;

// Of a preference it is that of the chosen answer, which comes first.
std::vector<SamplePrompt> prompts_of(const recipe::Recipe& recipe,
                                     const std::vector<data::DataFile>& files, std::size_t most,
                                     const Wanted& wanted) {
  std::vector<SamplePrompt> prompts;
  const auto file = std::ranges::find_if(files, is_lines);
  if (file == files.end()) return prompts;
  const bool preferences = recipe.train.preference.loss != recipe::PreferenceKind::none;
  data::RecordReader reader(file->path, tokenizer::PythonTokenizers(), preferences,
                            recipe.train.preference.loss == recipe::PreferenceKind::kto);
  for (int read = 0; read < kMostRead && prompts.size() < most; ++read) {
    const auto record = reader.next();
    if (!record) break;
    if (preferences) reader.next();
    if (!wanted(*record)) continue;
    if (auto prompt = prompt_of(*record)) prompts.push_back(std::move(*prompt));
  }
  return prompts;
}

constexpr std::size_t kShown = 6;  // samples
constexpr std::size_t kLines = 2;  // of them, since the last lines of a run are few
// Answers of chats are long: fewer of them, and their beginnings.
constexpr std::size_t kChatsShown = 3;
constexpr std::int64_t kChatTokens = 64;
// Of a prompt or an answer, which may be a page: the last lines of a run are read at once.
constexpr std::size_t kSampleColumns = 60;

// Cut to one line of the console.
std::string on_one_line(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  for (char& c : text) {
    if (c == '\n' || c == '\r' || c == '\t') c = ' ';
  }
  return text;
}

std::string shortened(const std::string& text) {
  const std::string line = on_one_line(text);
  const std::string begin = base::cut_to_columns(line, kSampleColumns);
  return begin.size() < line.size() ? begin + "…" : begin;
}

}  // namespace

std::string sample_line(const SamplePrompt& prompt, const std::string& answer, bool same) {
  const std::string asked = shortened(prompt.text);
  if (prompt.chat) return fmt::format("  {}  >  {}", asked, shortened(answer));
  return fmt::format("  {}  {} {}", same ? "right" : "wrong", asked, shortened(answer));
}

std::vector<SamplePrompt> held_out_prompts(const recipe::Recipe& recipe, std::size_t most) {
  const recipe::Recipe::Data& data = recipe.data;
  if (!data.eval.empty())
    return prompts_of(recipe, data::expanded_files(data.eval, true), most,
                      [](const data::Record& record) { return !record.undesirable; });
  if (data.hold_out == 0) return {};
  return prompts_of(
      recipe, data::expanded_files(data.train, false), most, [&](const data::Record& record) {
        return !record.undesirable &&
               data::is_held_out(record, data.hold_out, static_cast<std::uint64_t>(recipe.seed));
      });
}

std::vector<SamplePrompt> training_prompts(const recipe::Recipe& recipe, std::size_t most) {
  return prompts_of(recipe, data::expanded_files(recipe.data.train, false), most,
                    [](const auto&) { return true; });
}

std::string prompt_flags(const std::vector<SamplePrompt>& prompts) {
  if (prompts.empty()) return "--prompt \"...\"";
  // On one line, since a terminal may take the end of one for that of the command.
  const auto is_short = [](const SamplePrompt& prompt) {
    return prompt.text.size() <= kShortPrompt && base::printable(prompt.text) == prompt.text;
  };
  const auto found = std::ranges::find_if(prompts, is_short);
  const SamplePrompt& chosen = found == prompts.end() ? prompts.front() : *found;
  std::string text = chosen.text.substr(0, chosen.text.find('\n'));
  text = base::cut_to_columns(base::printable(text), kShortPrompt);
  return fmt::format("{}--prompt {}", chosen.chat ? "--chat " : "", base::shell_word(text));
}

bool trains_on_chats(const recipe::Recipe& recipe) {
  try {
    const std::vector<SamplePrompt> first = training_prompts(recipe, 1);
    return !first.empty() && first.front().chat.has_value();
  } catch (const store::StoreError&) {
    return false;  // the data need not be there any more
  }
}

std::vector<std::string> sample_completions(const std::filesystem::path& run_directory,
                                            const std::atomic<int>& stops) {
  const plan::RunFile run = load_run(run_directory);
  std::vector<SamplePrompt> shown = held_out_prompts(run.plan.recipe, kShown);
  std::erase_if(shown, [](const SamplePrompt& prompt) { return prompt.answer.empty(); });
  if (shown.empty()) return {};
  const bool chats = shown.front().chat.has_value();
  if (chats && shown.size() > kChatsShown) shown.resize(kChatsShown);
  const RunCheckpoint source = find_checkpoint(run_directory);
  if (!fits_here(source)) return {};
  const auto coder = make_text_coder(tokenizer_of_run(run, std::nullopt), run.plan.recipe);
  const auto model = load_whole_model(source);
  const models::ModelDescription described = models::describe(source.config);
  cli::GenerationOptions options;
  if (chats) options.max_tokens = kChatTokens;
  std::vector<std::string> lines;
  int right = 0;
  for (const SamplePrompt& prompt : shown) {
    if (stops > 0) break;
    std::vector<std::int32_t> tokens =
        prompt.chat ? coder->encode_chat(*prompt.chat) : coder->encode(prompt.text);
    Generation generation({{std::move(tokens), "an evaluation prompt"}}, described, *coder, options,
                          {});
    generation.on_done([&](std::size_t, const Completion& completion) {
      const bool same = on_one_line(completion.text) == on_one_line(prompt.answer);
      right += same ? 1 : 0;
      lines.push_back(sample_line(prompt, completion.text, same));
    });
    worker::answer_here(*model, generation);
  }
  if (lines.empty()) return {};
  const std::string title =
      chats
          ? "answers to evaluation prompts:"
          : fmt::format("completions of evaluation prompts ({} of {} right):", right, lines.size());
  lines.resize(std::min(lines.size(), kLines));
  lines.insert(lines.begin(), title);
  return lines;
}

}  // namespace strait::compute
