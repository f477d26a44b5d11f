#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <chrono>
#include <exception>
#include <memory>
#include <string>

#include "framework/mutex.h"
#include "framework/sync/group_hello.h"
#include "framework/sync/membership.h"
#include "framework/sync/replica_group.h"
#include "stages/nccl_library.h"

namespace strait::stages {

struct NcclLimits {
  std::chrono::milliseconds setup = std::chrono::minutes(2);
  // From when all members have given all sums until these are there.
  std::chrono::milliseconds sums = std::chrono::minutes(10);
  // NCCL knows that a connection broke, but not to which replica: its link says so a little later.
  std::chrono::milliseconds naming = std::chrono::seconds(3);
};

// A group of replicas whose gradients are on GPUs, which NCCL sums on a stream of its own beside
// the backward pass. The host waits for no sum: the trainer's stream does, and watch() asks now and
// then whether they are there. The order of a sum is NCCL's: it depends on the version, the
// topology and NCCL's settings, and is equal on all members.
class NcclGroup final : public sync::ReplicaGroup {
 public:
  // `first`: this is the first member, whose hello has the communicator's id.
  static sync::GroupHello hello(const nccl::Library& library, const std::string& place, bool first);

  // With what all members have said. Waits for them: net::LinkError (lost) if they are not
  // connected within the limit, or NCCL fails. `gradient` is flat, and lives as long.
  NcclGroup(std::shared_ptr<const nccl::Library> library, at::Tensor gradient,
            const sync::GroupHello& first, sync::Membership membership, NcclLimits limits);
  ~NcclGroup() override;

  std::string name() const override { return "NCCL " + library_->version(); }
  void gradient_ready() override;
  void sum(sync::Range range) override;
  void complete(const sync::WhileWaiting& /*while_waiting*/) override {}
  void arrive() override;
  void watch(const sync::WhileWaiting& while_waiting) override;
  void check() const override;

 private:
  // Waits for NCCL's own threads, which neither wait for the device nor, once the group is
  // connected, for other members.
  void finish(nccl::Result result, const char* doing, std::chrono::milliseconds limit);
  [[noreturn]] void lose(const std::string& what, std::vector<std::uint32_t> replicas) const;
  std::vector<std::uint32_t> others() const;
  // Throws if the sums of this round will not come.
  void check_sums(const sync::WhileWaiting& while_waiting,
                  std::chrono::steady_clock::time_point began);
  void abort();

  const std::shared_ptr<const nccl::Library> library_;
  const at::Tensor gradient_;
  const sync::Membership membership_;
  const NcclLimits limits_;
  const c10::Stream stream_;
  nccl::Communicator* communicator_ = nullptr;
  nccl::Result error_ = nccl::kSuccess;  // of the communicator, first seen then
  std::chrono::steady_clock::time_point error_since_;

  mutable Mutex mutex_;
  c10::Event ready_ STRAIT_GUARDED_BY(mutex_);  // recorded by the trainer's stream
  std::exception_ptr failure_ STRAIT_GUARDED_BY(mutex_);
};

}  // namespace strait::stages
