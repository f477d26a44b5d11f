#pragma once

#include "framework/trace/trace_file.h"
#include "launcher/run/run_directory.h"
#include "launcher/run/run_observer.h"
#include "launcher/run/step_ledger.h"

namespace strait::run {

struct RunEvent;

// Writes the files of a run: metrics.jsonl (a line per step), events.jsonl (a line per event) and
// status.json (the current state, replaced every second; read by `strait status`). Events about the
// whole run are in status.json before they are in events.jsonl. Observes one run, on the
// coordinator's thread.
class RunRecorder : public RunObserver {
 public:
  // `from` and `to`: the steps of this launch. So the status of a launch that fails before it
  // trains shows how far the run is.
  RunRecorder(const RunDirectory& directory, const std::string& run_id, std::uint32_t generation,
              store::Step from = {}, store::Step to = {});
  ~RunRecorder() override;

  void connected(const Hello& hello) override;
  void training(store::Step from, store::Step to) override;
  void reports(const std::vector<ProcessReport>& processes) override;
  void step(const StepLine& line) override;
  void evaluated(const Evaluated& evaluated) override;
  void checkpointed(store::Step step) override;
  void in_memory(store::Step step, const std::string& place) override;
  void checkpoint_failed(store::Step step, const std::string& text) override;
  void event(const std::string& source, const Event& event) override;
  void replicas_absent(const ReplicasAbsent& absent) override;
  void replica_left(const ReplicaLeft& gone) override;
  void rejoin_attempted(const RejoinAttempt& attempt) override;
  void replica_joined(const ReplicaJoined& joined) override;
  void standing_still(const std::string& why) override;
  void slow_parts(const std::vector<std::string>& sentences) override;
  void parts_measured(const std::vector<PartSeconds>& parts) override;
  void stopping(bool now) override;
  void ended(const Outcome& outcome) override;

 private:
  // If a file cannot be written, the run continues without it.
  void run_or_warn(const std::function<void()>& work);
  void append(const RunEvent& event);
  void write_status();

  const std::filesystem::path status_path_;
  const std::filesystem::path metrics_path_;
  std::optional<trace::JsonLines> metrics_;
  trace::JsonLines events_;
  // Events that a full disk has refused. Written before the next one: evaluations among them decide
  // where a run ends early.
  std::vector<nlohmann::ordered_json> unwritten_;
  std::unique_ptr<nlohmann::ordered_json> status_;  // next content of status.json
  int rejoins_ = 0;                                 // attempts so far, including failed ones
  RemainingTime remaining_;
  bool warned_ = false;
};

// An event of the launcher, at any time. Disk errors are only logged.
void record_event(const RunDirectory& directory, const Event& event);

// Between two launches of a run, when there is no RunRecorder: the same files. Disk errors are not
// reported, because the next launch meets them too.
//
// The last launch failed, and another one will follow: until then the state is "restarting".
void record_restarting(const RunDirectory& directory);
// The step and the hosts of the next launch are known.
void record_restart(const RunDirectory& directory, const Restart& restart);
// No further launch follows: the whole run ends this way, not as its last launch did.
void record_end(const RunDirectory& directory, const Outcome& outcome);

}  // namespace strait::run
