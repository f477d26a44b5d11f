#include "launcher/run/resume_changes.h"

#include <fmt/format.h>

#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>

#include "framework/fields/json_fields.h"
#include "framework/store/atomic_file.h"
#include "framework/store/checkpoint.h"
#include "framework/store/input_file.h"
#include "framework/store/step_folders.h"
#include "framework/store/store_error.h"
#include "launcher/base/errors.h"
#include "launcher/run/run_directory.h"

namespace strait::run {

void describe(auto& fields, fields::Is<ResumeChanges> auto& changes) {
  fields("from", changes.from), fields("plan", changes.plan), fields("recipe", changes.recipe);
}

namespace {

namespace fs = std::filesystem;

fs::path journal_file(const RunDirectory& run) { return run.path() / base::kJournalFile; }

constexpr std::uint64_t kMostBytes = std::numeric_limits<std::uint64_t>::max();

std::string whole_text(const fs::path& file) { return store::read_text_file(file, kMostBytes); }

void write_changes(const fs::path& file, const ResumeChanges& changes) {
  store::replace_file(file, fields::to_object(changes).dump(1) + "\n");
}

std::optional<ResumeChanges> read_changes(const fs::path& file) {
  if (!store::is_present(file)) return std::nullopt;
  try {
    return fields::from_text<ResumeChanges>(whole_text(file), file.filename().string(),
                                            {.string_bytes = kMostBytes});
  } catch (const base::MessageError& error) {
    throw base::UserError(
        base::ExitCode::mismatch,
        fmt::format("{} is not of this build ({}); resume with the build that wrote it",
                    file.string(), error.what()));
  }
}

void remove_file(const fs::path& file) {
  std::error_code error;
  fs::remove(file, error);
  if (error) throw store::system_error("remove", file, error.value());
}

void drop_later_steps(const fs::path& metrics, store::Step step) {
  if (!store::is_present(metrics)) return;
  const std::string text = whole_text(metrics);
  std::istringstream lines(text);
  std::string kept;
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json parsed = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    // A crash can leave an incomplete last line; its step is in no checkpoint.
    if (!parsed.is_object() || !parsed.contains("step")) continue;
    if (!parsed["step"].is_number_integer()) continue;
    if (parsed["step"].get<std::int64_t>() <= number(step)) kept += line + "\n";
  }
  if (kept != text) store::replace_file(metrics, kept);
}

// Idempotent: it may be repeated after a crash at any point.
void complete(const RunDirectory& run, const ResumeChanges& changes) {
  if (changes.from) {
    store::set_aside_newer(run.path(), *changes.from);
    drop_later_steps(run.metrics(), *changes.from);
  }
  if (changes.recipe) store::replace_file(run.recipe(), *changes.recipe);
  if (changes.plan) store::replace_file(run.plan(), *changes.plan);
  // The journal goes last: as long as it exists, the next start completes the changes.
  remove_file(journal_file(run));
  // Before training continues: repeated later, these changes would undo it.
  store::sync_directory(run.path());
}

}  // namespace

void apply_changes(const RunDirectory& run, const ResumeChanges& changes) {
  write_changes(journal_file(run), changes);
  complete(run, changes);
}

void complete_changes(const RunDirectory& run) {
  if (const auto changes = read_changes(journal_file(run))) complete(run, *changes);
}

}  // namespace strait::run
