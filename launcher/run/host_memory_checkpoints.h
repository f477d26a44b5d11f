#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "framework/mutex.h"
#include "launcher/plan/plan.h"
#include "launcher/run/memory_checkpoints.h"
#include "launcher/transfer/checkpoint_downloader.h"
#include "launcher/transfer/transfer_agent.h"

namespace strait::run {

// Over hosts: the agent of each host holds the parts of its processes, and the agent of a neighbour
// fetches a copy of each, behind all activations. So any one host may be lost. The former one is
// freed when the next one is on both and replaces it, and a checkpoint on two hosts is never
// replaced by one that has no copies.
class HostMemoryCheckpoints : public MemoryCheckpoints {
 public:
  // The agent outlives this. `lost`: a host's agent is disconnected; any thread.
  HostMemoryCheckpoints(transfer::TransferAgent& agent, const plan::Plan& plan,
                        std::vector<transfer::CheckpointDownloader::Host> hosts,
                        std::function<bool(std::size_t)> lost);
  ~HostMemoryCheckpoints() override;  // gives up what is on its way

  void hold(store::Step step, std::vector<MemoryPart> parts) override STRAIT_EXCLUDES(mutex_);
  std::vector<MemoryDecision> take_decisions() override STRAIT_EXCLUDES(mutex_);
  void judge(const LossHistory& losses) override STRAIT_EXCLUDES(mutex_);
  // Ends what is on its way.
  std::vector<Held> end_and_list() override STRAIT_EXCLUDES(mutex_);
  void save(const Held& one, const std::filesystem::path& folder,
            const std::function<bool()>& give_up) override STRAIT_EXCLUDES(mutex_);

 private:
  struct Content {
    net::ProcessName process;
    store::ShardFile file;
    transfer::ChunkTable table;
    std::vector<std::size_t> hosts;  // that hold it
  };
  struct HeldCheckpoint {
    store::Step step{};
    std::vector<Content> contents;
    bool on_two = false;   // hosts, each of it
    bool decided = false;  // it is held: its processes have freed theirs
  };
  struct Request {
    store::Step step{};
    std::vector<MemoryPart> parts;
  };

  void stop() STRAIT_EXCLUDES(mutex_);
  void run() STRAIT_EXCLUDES(mutex_);
  // UserError, StoreError: what went wrong.
  HeldCheckpoint hold_on_hosts(const Request& request) STRAIT_EXCLUDES(mutex_);
  void check_written(const Content& content) const;
  void copy_to_neighbours() STRAIT_EXCLUDES(mutex_);
  void decide(const std::string& trouble) STRAIT_EXCLUDES(mutex_);
  // Frees one of both as soon as it is not needed any more.
  void replace() STRAIT_REQUIRES(mutex_);
  void give_up_next() STRAIT_REQUIRES(mutex_);
  void release(const std::optional<HeldCheckpoint>& old, const std::optional<HeldCheckpoint>& kept);
  template <class T>
  T wait_on(std::future<T>& future, std::size_t host) const;
  std::string place_of(const HeldCheckpoint& one) const;

  transfer::TransferAgent& agent_;
  const std::vector<transfer::CheckpointDownloader::Host> hosts_;
  const std::vector<std::optional<std::size_t>> neighbours_;  // by host
  std::vector<std::pair<net::ProcessName, std::size_t>> places_;
  const std::function<bool(std::size_t)> lost_;
  std::atomic<bool> closing_ = false;
  Mutex mutex_;
  Condition changed_;
  std::optional<Request> request_ STRAIT_GUARDED_BY(mutex_);
  std::optional<HeldCheckpoint> safe_ STRAIT_GUARDED_BY(mutex_);
  // Held, being copied; or decided, until it replaces safe_.
  std::optional<HeldCheckpoint> next_ STRAIT_GUARDED_BY(mutex_);
  LossHistory losses_ STRAIT_GUARDED_BY(mutex_);
  std::vector<MemoryDecision> decisions_ STRAIT_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace strait::run
