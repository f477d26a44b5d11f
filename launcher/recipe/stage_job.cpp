#include "launcher/recipe/stage_job.h"

#include "framework/fields/json_fields.h"
#include "framework/store/file_hash.h"
#include "launcher/base/errors.h"
#include "launcher/base/read_all.h"
#include "launcher/recipe/run_files.h"

namespace strait::fields {

template <>
struct OwnJson<plan::Plan> {
  // Each agent sets the variables of its own host.
  static nlohmann::json write(const plan::Plan& plan) {
    return plan::to_json(plan::without_secrets(plan));
  }
  static plan::Plan read(const nlohmann::json& json) { return plan::plan_from_json(json); }
};
template <>
inline constexpr std::tuple kListForm<plan::PluginCopy> = {&plan::PluginCopy::file,
                                                           &plan::PluginCopy::hash};

}  // namespace strait::fields

namespace strait::plan {

void describe(auto& f, fields::Is<StageJob> auto& m) {
  f("plan", m.plan), f("process", m.process), f("run", m.run), f("generation", m.generation);
  f("public_key", m.keys.public_key), f("secret_key", m.keys.secret_key);
  f("coordinator_endpoint", m.coordinator_endpoint), f("coordinator_key", m.coordinator_key);
  f("peer_keys", m.peer_keys), f("plugins", m.plugins), f("run_directory", m.run_directory);
  f("binds", m.binds), f("resume", m.resume), f("resume_caches", m.resume_caches);
  f("resume_exact", m.resume_exact), f("absent", m.absent), f("joins", m.joins);
  f("inference", m.inference), f("codec_generation", m.codec_generation);
  f("best_evaluation", m.early_stop.best);
  f("evaluations_since", m.early_stop.since_better);
}

namespace {

[[noreturn]] void refuse_job(const std::string& cause) {
  throw base::UserError(base::ExitCode::mismatch, "the job on stdin is not one of this build: {}",
                        cause);
}

// The length comes before the text: a wrong program on stdin must not make this one allocate 4 GiB.
constexpr std::uint32_t kMaxJobBytes = 64U << 20U;

}  // namespace

std::vector<PluginCopy> plugin_copies(const std::vector<std::string>& files) {
  std::vector<PluginCopy> copies;
  copies.reserve(files.size());
  for (const std::string& file : files) copies.push_back({file, store::hash_file(file).hash});
  return copies;
}

std::string to_text(const StageJob& job) { return fields::to_object(job).dump(); }

StageJob parse_stage_job(const std::string& text) {
  try {
    return fields::from_text<StageJob>(text, "job",
                                       {.string_bytes = kMaxJobBytes, .values = kMaxJobBytes});
  } catch (const base::MessageError& error) {
    refuse_job(error.what());
  }
}

StageJob read_stage_job(int descriptor) {
  using State = base::PrefixedText::State;
  const base::PrefixedText read = base::read_length_prefixed(
      // No deadline: the launcher ends a start that takes too long.
      descriptor, kMaxJobBytes, std::chrono::steady_clock::time_point::max());
  if (read.state == State::unreadable) {
    throw std::system_error(read.error, std::generic_category(), "reading the job on stdin");
  }
  if (read.state == State::too_long) {
    throw base::UserError(base::ExitCode::bad_input,
                          "the job on stdin claims {} bytes; at most {} are possible", read.size,
                          kMaxJobBytes);
  }
  if (read.state != State::whole) {
    throw base::UserError(base::ExitCode::bad_input,
                          "strait-stage is started by strait, which hands it a plan on stdin; "
                          "stdin ended before the plan did");
  }
  return parse_stage_job(read.text);
}

}  // namespace strait::plan
