#include "launcher/app/sample_completions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "framework/store/record_reader.h"
#include "launcher/app/generation.h"
#include "launcher/app/run_options.h"
#include "launcher/app/text_coder.h"
#include "launcher/app/whole_model.h"
#include "launcher/inference/model_part.h"
#include "models/model_description.h"

namespace strait::app {
namespace {

constexpr int kShown = 6;  // samples: what fits on a screen

// Cut to one line of the console.
std::string on_one_line(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  for (char& c : text) {
    if (c == '\n' || c == '\r' || c == '\t') c = ' ';
  }
  return text;
}

}  // namespace

std::vector<std::string> sample_completions(const std::filesystem::path& run_directory,
                                            const std::atomic<int>& stops) {
  const plan::RunFile run = read_run(run_directory);
  const auto& files = run.plan.recipe.data.eval;
  const auto records = std::ranges::find_if(files, [](const auto& file) {
    const std::filesystem::path ending = std::filesystem::path(file.path).extension();
    return ending == ".jsonl" || ending == ".ndjson";
  });
  if (records == files.end()) return {};
  std::vector<store::Record> shown;
  store::RecordReader reader(records->path);
  while (static_cast<int>(shown.size()) < kShown) {
    auto record = reader.next();
    if (!record) break;
    if (record->pieces.size() != 2 || !record->chat.empty() || record->pieces[0].is_target)
      continue;
    shown.push_back(std::move(*record));
  }
  if (shown.empty()) return {};
  const RunCheckpoint source = find_checkpoint(run_directory);
  if (!fits_here(source)) return {};
  const auto coder = make_text_coder(tokenizer_of_run(run, std::nullopt));
  const auto model = load_whole_model(source);
  const models::ModelDescription described = models::describe(source.config);
  std::vector<std::string> lines;
  int right = 0;
  for (const store::Record& record : shown) {
    if (stops > 0) break;
    Generation generation({{coder->encode(record.pieces[0].text), record.origin + ": the prompt"}},
                          described, *coder, {}, 1);
    generation.on_done([&](std::size_t, const Completion& completion) {
      const bool same = on_one_line(completion.text) == on_one_line(record.pieces[1].text);
      right += same ? 1 : 0;
      lines.push_back(fmt::format("  {}  {} {}", same ? "right" : "wrong",
                                  on_one_line(record.pieces[0].text),
                                  on_one_line(completion.text)));
    });
    inference::answer_here(*model, generation);
  }
  if (lines.empty()) return {};
  lines.insert(
      lines.begin(),
      fmt::format("completions of evaluation prompts ({} of {} right):", right, lines.size()));
  return lines;
}

}  // namespace strait::app
