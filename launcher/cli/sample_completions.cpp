#include "launcher/cli/sample_completions.h"

#include <fmt/format.h>

#include <cstdint>
#include <utility>

#include "launcher/base/text.h"
#include "launcher/cli/generation.h"
#include "launcher/cli/run_options.h"
#include "launcher/cli/sample_prompts.h"
#include "launcher/cli/text_coder.h"
#include "launcher/cli/whole_model.h"
#include "launcher/worker/model_part.h"
#include "models/model_description.h"

namespace strait::cli {
namespace {

constexpr std::size_t kShown = 6;  // samples: what fits on a screen
// Answers of chats are long: fewer of them, and their beginnings.
constexpr std::size_t kChatsShown = 3;
constexpr std::int64_t kChatTokens = 64;
constexpr std::size_t kChatColumns = 60;

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
  const std::string begin = base::cut_to_columns(line, kChatColumns);
  return begin.size() < line.size() ? begin + "…" : begin;
}

std::string sample_line(const SamplePrompt& prompt, const std::string& answer, bool same) {
  if (prompt.chat) return fmt::format("  {}  >  {}", shortened(prompt.text), shortened(answer));
  return fmt::format("  {}  {} {}", same ? "right" : "wrong", on_one_line(prompt.text),
                     on_one_line(answer));
}

}  // namespace

std::vector<std::string> sample_completions(const std::filesystem::path& run_directory,
                                            const std::atomic<int>& stops) {
  const plan::RunFile run = read_run(run_directory);
  std::vector<SamplePrompt> shown = held_out_prompts(run.plan.recipe, kShown);
  std::erase_if(shown, [](const SamplePrompt& prompt) { return prompt.answer.empty(); });
  if (shown.empty()) return {};
  const bool chats = shown.front().chat.has_value();
  if (chats && shown.size() > kChatsShown) shown.resize(kChatsShown);
  const RunCheckpoint source = find_checkpoint(run_directory);
  if (!fits_here(source)) return {};
  const auto coder = make_text_coder(tokenizer_of_run(run, std::nullopt));
  const auto model = load_whole_model(source);
  const models::ModelDescription described = models::describe(source.config);
  GenerationOptions options;
  if (chats) options.max_tokens = kChatTokens;
  std::vector<std::string> lines;
  int right = 0;
  for (const SamplePrompt& prompt : shown) {
    if (stops > 0) break;
    std::vector<std::int32_t> tokens =
        prompt.chat ? coder->encode_chat(*prompt.chat) : coder->encode(prompt.text);
    Generation generation({{std::move(tokens), "an evaluation prompt"}}, described, *coder, options,
                          1);
    generation.on_done([&](std::size_t, const Completion& completion) {
      const bool same = on_one_line(completion.text) == on_one_line(prompt.answer);
      right += same ? 1 : 0;
      lines.push_back(sample_line(prompt, completion.text, same));
    });
    worker::answer_here(*model, generation);
  }
  if (lines.empty()) return {};
  lines.insert(lines.begin(),
               chats ? "answers to evaluation prompts:"
                     : fmt::format("completions of evaluation prompts ({} of {} right):", right,
                                   lines.size()));
  return lines;
}

}  // namespace strait::cli
