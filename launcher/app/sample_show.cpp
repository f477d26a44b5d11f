#include "launcher/app/sample_show.h"

#include <fmt/format.h>

#include "framework/store/record_reader.h"
#include "launcher/app/text_generator.h"
#include "launcher/app/whole_model.h"
#include "launcher/plugin/plugin_file.h"

namespace strait::app {
namespace {

constexpr int kShown = 6;

// Cut to one line of the console.
std::string on_one_line(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  for (char& letter : text) {
    if (letter == '\n' || letter == '\r' || letter == '\t') letter = ' ';
  }
  return text;
}

}  // namespace

std::vector<std::string> show_samples(const std::filesystem::path& run_directory) {
  const plan::RunFile run = plan::read_run_file(run_directory / "plan.json", plugin::load_plugins);
  const std::filesystem::path data = run.plan.recipe.data.eval;
  if (data.extension() != ".jsonl" && data.extension() != ".ndjson") return {};
  WholeModel whole = load_whole_model(run_directory);
  const std::int64_t positions = models::describe(whole.config).positions;
  std::vector<std::string> lines;
  int right = 0;
  store::RecordReader reader(data);
  while (static_cast<int>(lines.size()) < kShown) {
    const auto record = reader.next();
    if (!record) break;
    if (record->pieces.size() != 2 || record->pieces[0].is_target) continue;
    const std::string answer =
        generate_text(*whole.model, positions, record->pieces[0].text, GenerationOptions{});
    const bool same = on_one_line(answer) == on_one_line(record->pieces[1].text);
    right += same ? 1 : 0;
    lines.push_back(fmt::format("  {}  {} {}", same ? "right" : "wrong",
                                on_one_line(record->pieces[0].text), on_one_line(answer)));
  }
  if (lines.empty()) return {};
  lines.insert(
      lines.begin(),
      fmt::format("completions of evaluation prompts ({} of {} right):", right, lines.size()));
  return lines;
}

}  // namespace strait::app
