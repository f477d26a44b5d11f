#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

#include "framework/store/manifest.h"
#include "launcher/run/coordinator_options.h"
#include "launcher/run/loss_history.h"
#include "launcher/run/run_directory.h"

namespace strait::run {

// The checkpoints that are held in memory (checkpoint.memory_every): the newest that is whole, and
// while it is replaced the next one; needed_in_memory() says until when. They outlive the processes
// that made them, not the launch. Once these processes have ended, what is held becomes a
// checkpoint on this machine's disk.
class MemoryCheckpoints : public MemoryHolder {
 public:
  struct Held {
    store::Step step{};
    std::vector<store::ShardFile> files;
  };
  // After every loss, on the coordinator's thread.
  virtual void judge(const LossHistory& losses) = 0;

  // What is held, newest first. No hold() follows.
  virtual std::vector<Held> end_and_list() = 0;

  // Writes the files of one to this folder, those that are not there. `give_up` is called while it
  // waits, and ends that. UserError, StoreError: why it is not available.
  virtual void save(const Held& one, const std::filesystem::path& folder,
                    const std::function<bool()>& give_up) = 0;
};

// Which of these whole checkpoints (newest first) memory needs: the newest that is known to be
// good, and newer ones until the loss of their weights has been seen; where none is good, the
// newest. Pure.
std::vector<store::Step> needed_in_memory(const std::vector<store::Step>& held,
                                          const LossHistory& losses);

// Makes the newest checkpoint in memory that is still available one on this machine's disk, if it
// is newer than what this machine has on its disk, and passes over those of bad weights. `commit`
// writes the manifest.
struct MemoryRecovery {
  LossHistory losses;
  std::function<void(store::Step, const std::vector<store::ShardFile>&)> commit;
  std::function<bool()> give_up;
  std::function<void(const Event&)> report;
};
// Its step, if no newer one was committed.
std::optional<store::Step> recover_from_memory(const RunDirectory& directory,
                                               MemoryCheckpoints& memory,
                                               const MemoryRecovery& with);

}  // namespace strait::run
