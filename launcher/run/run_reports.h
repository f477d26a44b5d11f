#pragma once

#include <thread>
#include <vector>

#include "framework/mutex.h"
#include "launcher/plan/plan.h"
#include "launcher/run/model_questions.h"
#include "launcher/run/run_directory.h"
#include "launcher/run/run_observer.h"

namespace strait::run {

// Writes the report of a run: after each checkpoint, on a thread of its own with the lowest
// priority, and at the end. If checkpoints come while it writes, one more report follows.
class RunReports final : public RunObserver {
 public:
  // `directory` and `model` outlive it.
  RunReports(const RunDirectory& directory, plan::Plan plan, const ModelQuestions& model);
  ~RunReports() override;  // waits for the report that it writes

  void checkpointed(store::Step step) override;

  // After the run: merges the traces of its processes and writes the last report. Returns what went
  // wrong, which does not change how the run ended.
  std::vector<Event> finish();

 private:
  void write_reports();
  void stop();

  const RunDirectory& directory_;
  const plan::Plan plan_;
  const ModelQuestions& model_;
  Mutex mutex_;
  Condition changed_;
  bool wanted_ STRAIT_GUARDED_BY(mutex_) = false;
  bool ending_ STRAIT_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses all members above
};

}  // namespace strait::run
