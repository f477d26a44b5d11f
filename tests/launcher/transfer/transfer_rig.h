#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "launcher/transfer/transfer_agent.h"
#include "tests/framework/store/temporary_directory.h"

namespace strait::transfer {

std::string random_bytes(std::size_t count, std::uint64_t seed);

// A host with a directory and a porter, which can be stopped and started again.
struct TransferHost {
  TransferHost(net::ProcessName its_name, TransferAgentOptions its_options);

  void start();
  void stop() { porter.reset(); }

  store::TemporaryDirectory directory;
  net::ProcessName name;
  TransferAgentOptions options;
  std::unique_ptr<TransferAgent> porter;
};

// A launcher and keepers, each linked to each other one by memory links.
struct TransferRig {
  explicit TransferRig(std::size_t keepers, const TransferAgentOptions& options = {});

  static void link(TransferHost& left, TransferHost& right);
  // Stops a keeper, starts it again over what lies on its disk, and links it to everybody.
  void restart(std::size_t keeper);

  TransferHost launcher;
  std::vector<std::unique_ptr<TransferHost>> keepers;
};

// The value of a future that must come; a test that waits for ever names itself this way.
template <class T>
T soon(std::future<T>& future) {
  if (future.wait_for(std::chrono::seconds(60)) != std::future_status::ready) {
    throw std::runtime_error("no answer within a minute");
  }
  return future.get();
}

}  // namespace strait::transfer
