#pragma once

#include <optional>
#include <vector>

#include "framework/file_descriptor.h"
#include "launcher/run/memory_checkpoints.h"

namespace strait::run {

// Of processes of this machine: the launcher keeps their files in memory open. It outlives them, so
// no process that is lost takes its part along. One thread.
class LocalMemoryCheckpoints : public MemoryCheckpoints {
 public:
  void hold(store::Step step, std::vector<MemoryPart> parts) override;
  std::vector<MemoryDecision> take_decisions() override;
  void judge(const LossHistory& losses) override;
  std::vector<Held> end_and_list() override;
  void save(const Held& one, const std::filesystem::path& folder,
            const std::function<bool()>& give_up) override;

 private:
  struct Content {
    Held held;
    std::vector<FileDescriptor> files;
  };
  void drop_what_is_not_needed();

  std::vector<Content> contents_;  // newest first
  LossHistory losses_;
  std::vector<MemoryDecision> decisions_;
};

}  // namespace strait::run
