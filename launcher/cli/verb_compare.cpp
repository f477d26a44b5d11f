

#include "framework/store/atomic_file.h"
#include "launcher/cli/command_line.h"
#include "launcher/cli/metric_text.h"
#include "launcher/cli/report.h"
#include "launcher/cli/report_files.h"
#include "launcher/cli/verbs.h"
#include "launcher/recipe/recipe_keys.h"

namespace strait::cli {
namespace {

namespace fs = std::filesystem;
using base::TextColumn;

// A result of a run: its name, its value, and the value as text.
struct Result {
  const char* name;
  nlohmann::json value;
  std::string text;
};

struct ComparedRun {
  fs::path path;
  recipe::Recipe recipe;
  std::vector<Result> results;
  ReportData data;
};

nlohmann::json number_or_null(const std::optional<double>& number) {
  return number ? nlohmann::json(*number) : nlohmann::json();
}

std::vector<Result> results_of(const fs::path& run, const plan::Plan& plan,
                               const ReportData& data) {
  std::optional<run::LossHistory::Loss> best;  // with a finite value
  for (const auto& [step, loss] : run::evaluations_of(run)) {
    if (std::isfinite(loss.value) && (!best || loss.value < best->value)) best = loss;
  }
  const double rate = data.seconds > 0 ? data.tokens / data.seconds : 0;
  const auto bytes = static_cast<std::uint64_t>(data.sent_bytes);
  const auto step =
      static_cast<std::int64_t>(data.last.is_object() ? number_at(data.last, "step") : 0);
  return {
      {"step", step, fmt::format("{} of {}", step, plan.steps)},
      {"loss", number_or_null(data.last_loss()), data.last_loss_text()},
      {"best_evaluation", best ? nlohmann::json(best->value) : nlohmann::json(),
       best ? fmt::format("{:.4g}", best->value) : "-"},
      {"best_evaluation_step", best ? nlohmann::json(number(best->step)) : nlohmann::json(),
       best ? fmt::format("{}", number(best->step)) : "-"},
      {"tokens", data.tokens, fmt::format("{:.0f}", data.tokens)},
      {"seconds", data.seconds, clock_text(data.seconds)},
      {"tokens_per_second", rate, fmt::format("{:.0f}", rate)},
      {"sent_bytes", bytes, base::byte_text(bytes)},
  };
}

std::string setting_text(const recipe::RecipeValue& value) {
  return value.is_null() ? "absent" : value.dump();
}

std::vector<const recipe::RecipeKey*> differing_keys(const std::vector<ComparedRun>& runs) {
  std::vector<const recipe::RecipeKey*> keys;
  for (const recipe::RecipeKey& key : recipe::recipe_keys()) {
    const recipe::RecipeValue first = key.get(runs.front().recipe);
    const bool differs = std::ranges::any_of(
        runs, [&](const ComparedRun& run) { return key.get(run.recipe) != first; });
    if (differs && key.name != "name") keys.push_back(&key);
  }
  return keys;
}

// A column of names, and one for each run.
std::vector<TextColumn> columns_of(const std::vector<ComparedRun>& runs,
                                   const std::vector<const recipe::RecipeKey*>& keys) {
  TextColumn names{"", {}, TextColumn::Kind::key};
  for (const recipe::RecipeKey* key : keys) names.cells.push_back(key->name);
  for (const Result& one : runs.front().results) names.cells.emplace_back(one.name);
  std::vector<TextColumn> table = {names};
  for (const ComparedRun& run : runs) {
    // The folder of an earlier run is another one than its recipe says.
    const bool is_only = std::ranges::count_if(runs, [&](const ComparedRun& other) {
                           return other.recipe.name == run.recipe.name;
                         }) == 1;
    TextColumn column{is_only ? run.recipe.name : run.path.string(), {}, TextColumn::Kind::text};
    for (const recipe::RecipeKey* key : keys)
      column.cells.push_back(setting_text(key->get(run.recipe)));
    for (const Result& one : run.results) column.cells.push_back(one.text);
    table.push_back(std::move(column));
  }
  return table;
}

void print_table(const std::vector<ComparedRun>& runs,
                 const std::vector<const recipe::RecipeKey*>& keys) {
  const std::vector<TextColumn> table = columns_of(runs, keys);
  for (const std::string& line : base::table_lines(table, base::terminal_columns())) {
    fmt::print("{}\n", line);
  }
  if (keys.empty()) fmt::print("the settings do not differ\n");
}

// A row for each run, so that many runs do not make the page wide.
void write_page(const fs::path& page, std::vector<ComparedRun>& runs,
                const std::vector<const recipe::RecipeKey*>& keys) {
  nlohmann::json columns = nlohmann::json::array();
  nlohmann::json rows = nlohmann::json::array();
  const std::vector<TextColumn> table = columns_of(runs, keys);
  columns.push_back("run");
  for (const std::string& name : table.front().cells) columns.push_back(name);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    nlohmann::json& row = rows.emplace_back(nlohmann::json::array({runs[i].path.string()}));
    for (const std::string& cell : table[i + 1].cells) row.push_back(cell);
  }
  std::vector<std::pair<std::string, ReportData>> curves;
  curves.reserve(runs.size());
  for (ComparedRun& run : runs) curves.emplace_back(run.path.string(), std::move(run.data));
  store::replace_file(page, compare_page(curves, {{"columns", columns}, {"rows", rows}}));
}

void print_json(const std::vector<ComparedRun>& runs,
                const std::vector<const recipe::RecipeKey*>& keys) {
  nlohmann::json list = nlohmann::json::array();
  for (const ComparedRun& run : runs) {
    nlohmann::json one = {{"run", run.path.string()}, {"settings", nlohmann::json::object()}};
    for (const recipe::RecipeKey* key : keys) one["settings"][key->name] = key->get(run.recipe);
    for (const Result& result : run.results) one["results"][result.name] = result.value;
    list.push_back(std::move(one));
  }
  fmt::print("{}\n", list.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

base::ExitCode compare_runs(const std::vector<std::string>& names, const fs::path& page,
                            bool as_json) {
  std::vector<ComparedRun> runs;
  runs.reserve(names.size());
  for (const std::string& name : names) {
    const fs::path path = run_directory(name);
    const plan::Plan plan = read_run(path).plan;
    ReportData data = read_report_data(path);
    std::vector<Result> results = results_of(path, plan, data);
    runs.push_back({path, plan.recipe, std::move(results), std::move(data)});
  }
  const std::vector<const recipe::RecipeKey*> keys = differing_keys(runs);
  (as_json ? print_json : print_table)(runs, keys);
  if (!page.empty()) write_page(page, runs, keys);
  return base::ExitCode::done;
}

}  // namespace

void add_compare(CLI::App& cli, Command& command) {
  struct Options {
    std::vector<std::string> runs;
    fs::path page;
    bool json = false;
  };
  const auto options = std::make_shared<Options>();
  CLI::App* verb =
      cli.add_subcommand("compare", "show in what runs differ: their settings and their results");
  verb->add_option("runs", options->runs, "two or more directories, runs/NAME, or NAME alone")
      ->required()
      ->expected(2, 100);
  verb->add_option("--page", options->page, "also write their curves over each other, as HTML");
  verb->add_flag("--json", options->json, "machine-readable output");
  verb->callback([options, &command] {
    command.run = [options] { return compare_runs(options->runs, options->page, options->json); };
  });
}

}  // namespace strait::cli
