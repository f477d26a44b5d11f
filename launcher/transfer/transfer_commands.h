#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <variant>

#include "framework/file_descriptor.h"
#include "launcher/transfer/fetch_queue.h"
#include "launcher/transfer/table_cache.h"
#include "launcher/transfer/transfer_message.h"

namespace strait::transfer {

// The launcher's side of commands: those that were sent and have no result yet. One thread.
class PendingCommands {
 public:
  using Result = std::variant<std::promise<ChunkTable>, std::promise<std::uint64_t>>;

  void add(std::uint64_t command, std::size_t peer, std::shared_ptr<Result> result);

  // The result or the error from this peer. A command that was cancelled is ignored. MessageError:
  // it is another peer's command, or has a result of another type.
  template <class T>
  void complete(std::size_t peer, std::uint64_t command, const T& value);
  void fail(std::size_t peer, std::uint64_t command, const std::exception_ptr& error);

  void fail_all(std::size_t peer, const std::exception_ptr& error);
  // Breaks its promise. The peer that it was sent to; nothing where it is not pending.
  std::optional<std::size_t> cancel(std::uint64_t command);

 private:
  struct Pending {
    std::size_t peer = 0;
    std::shared_ptr<Result> result;
  };

  std::map<std::uint64_t, Pending> pending_;
};

// Offers a file of this host to all peers.
void offer_file(ChunkSource& chunk_source, TransferPeers& peers, const std::filesystem::path& path,
                const ChunkTable& table);

// The host agent's side: executes the launcher's commands and sends Done, StatResult or Failed.
// Only the agent's thread may call; files are read and written on the file thread.
class HostCommands {
 public:
  // `numbers`: of the agent's fetches.
  HostCommands(FetchQueue& fetches, const TableCache& tables, ChunkSource& chunk_source,
               TransferPeers& peers, FileWorker& file_worker, std::atomic<std::uint64_t>& numbers)
      : fetches_(fetches),
        tables_(tables),
        chunk_source_(chunk_source),
        peers_(peers),
        file_worker_(file_worker),
        numbers_(numbers) {}

  void run(std::size_t peer, const message::Stat& stat);
  void run(std::size_t peer, const message::Fetch& fetch);
  void run(std::size_t peer, const message::WriteFile& write);
  void run(std::size_t peer, const message::Cancel& cancel);
  void run(std::size_t peer, const message::PruneCheckpoints& prune);
  void run(std::size_t peer, const message::Rewind& rewind);
  void run(std::size_t peer, const message::HoldMemory& hold);
  void run(std::size_t peer, const message::FetchToMemory& fetch);
  void run(std::size_t peer, const message::Release& release);

 private:
  // Offers its chunks to all peers.
  void hold(const ChunkTable& table, FileDescriptor content);
  void run_file_command(std::size_t peer, std::uint64_t command, std::function<void()> work);
  void send_failure(std::size_t peer, std::uint64_t command, const std::exception_ptr& error);

  FetchQueue& fetches_;
  const TableCache& tables_;
  ChunkSource& chunk_source_;
  TransferPeers& peers_;
  FileWorker& file_worker_;
  std::atomic<std::uint64_t>& numbers_;
  std::map<std::uint64_t, std::uint64_t> fetch_numbers_;  // of the fetch queue, by command
  // In memory, by content id; and the numbers of the fetches that bring others.
  std::map<std::string, FileDescriptor> held_;
  std::map<std::string, std::uint64_t> coming_;
};

}  // namespace strait::transfer
