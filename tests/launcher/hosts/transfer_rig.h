#pragma once

#include <random>

#include "launcher/hosts/transfer_agent.h"
#include "tests/scratch_directory.h"

namespace strait::transfer {

constexpr std::size_t kMebibyte = std::size_t{1} << 20;

std::string random_bytes(std::size_t count, std::uint64_t seed);

FetchRequest all_of(const ChunkTable& table, const std::filesystem::path& path);

// A host with a directory and a transfer agent, which can be stopped and started again.
struct TransferHost {
  TransferHost(net::ProcessName its_name, TransferAgentOptions its_options);

  void start();
  // As the host's agent does with a request of the launcher: Failure, where there is no agent or it
  // ends before it has replied. All hosts of a rig are linked.
  void perform(const FileRequest& request, const OnFileReply& on_reply);
  void stop() { agent.reset(); }

  ScratchDirectory directory;
  net::ProcessName name;
  TransferAgentOptions options;
  std::unique_ptr<TransferAgent> agent;
};

// A launcher and host agents with a memory link between every two.
struct TransferRig {
  explicit TransferRig(std::size_t count, TransferAgentOptions options = {});

  static void link(TransferHost& left, TransferHost& right);
  // The far end of a link between the host's agent and a peer that the test plays.
  static std::unique_ptr<net::Link> link_peer(TransferHost& host, const net::ProcessName& peer);
  // Stops a host's agent, starts it again over the same directory, and links it with all others.
  void restart(std::size_t number);

  // A file of the launcher with these bytes.
  ChunkTable offer(const std::string& bytes) const {
    const auto source = launcher.directory / "file";
    ScratchDirectory::write(source, bytes);
    return launcher.agent->offer(source);
  }

  std::vector<std::unique_ptr<TransferHost>> hosts;
  TransferHost launcher;  // after the hosts that it asks
};

// The next message of this kind; others are passed over.
template <class Kind>
Kind receive_next(net::Link& link) {
  while (true) {
    const message::Message received = message::parse_message(link.receive());
    if (const auto* wanted = std::get_if<Kind>(&received)) return *wanted;
  }
}

// The value of a future; fails after a minute, so that a test that hangs is named.
template <class T>
T get_soon(std::future<T>& future) {
  if (future.wait_for(std::chrono::seconds(60)) != std::future_status::ready) {
    throw std::runtime_error("timed out after 60 s");
  }
  return future.get();
}

}  // namespace strait::transfer
