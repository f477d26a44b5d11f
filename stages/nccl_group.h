#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <exception>
#include <memory>

#include "framework/mutex.h"
#include "framework/sync/membership.h"
#include "framework/sync/replica_group.h"
#include "stages/nccl_library.h"

namespace strait::stages {

struct NcclLimits {
  std::chrono::milliseconds setup = std::chrono::minutes(2);
  // From the moment when all members have given all gradients until the sums are complete.
  std::chrono::milliseconds sums = std::chrono::minutes(10);
  // NCCL notices a broken connection but not which replica it led to; the replica's link says so a
  // little later.
  std::chrono::milliseconds naming = std::chrono::seconds(3);
};

// A group of replicas whose gradients are on GPUs. NCCL sums them on its own stream during the
// backward pass, and copies weights on it where members share the optimizer's state. The host waits
// for neither: the trainer's stream does, and watch() polls for completion. NCCL chooses the order
// of a sum. It depends on the version, the topology and NCCL's settings, and is equal on all
// members.
class NcclGroup final : public sync::ReplicaGroup {
 public:
  // `first`: this is the first member, whose hello carries the communicator's id.
  static sync::GroupHello hello(const nccl::Library& library, const std::string& place, bool first);

  // Connects the members, whose hellos are known, and waits for them. net::LinkError (lost): they
  // do not connect within the limit, or NCCL fails. `gradient` and `weights` are flat and outlive
  // the group. Undefined weights: it cannot gather().
  NcclGroup(std::shared_ptr<const nccl::Library> library, at::Tensor gradient, at::Tensor weights,
            const sync::GroupHello& first, sync::Membership membership, NcclLimits limits);
  ~NcclGroup() override;

  std::string name() const override { return "NCCL " + library_->version(); }
  void values_ready() override;
  void sum(sync::Range range) override;
  void complete(const sync::WhileWaiting& /*while_waiting*/) override {}
  bool can_gather() const override { return weights_.defined(); }
  void gather(std::span<const sync::Part> parts,
              const sync::WhileWaiting& /*while_waiting*/) override;
  void arrive() override;
  void watch(const sync::WhileWaiting& while_waiting) override;
  void check() const override;

 private:
  // Waits for NCCL's own threads. These do not wait for the device and, once the group is
  // connected, not for other members.
  void finish(nccl::Result result, const char* doing, std::chrono::milliseconds limit);
  [[noreturn]] void lose(const std::string& what, std::vector<std::uint32_t> replicas) const;
  std::vector<std::uint32_t> others() const;
  void wait_for_trainer();  // on NCCL's stream, for values_ready()
  // Throws if the sums of this round will not complete.
  void check_sums(const sync::WhileWaiting& while_waiting,
                  std::chrono::steady_clock::time_point began);
  void abort();

  const std::shared_ptr<const nccl::Library> library_;
  const at::Tensor gradient_;
  const at::Tensor weights_;
  const sync::Membership membership_;
  const NcclLimits limits_;
  const c10::Stream stream_;
  nccl::Communicator* communicator_ = nullptr;
  nccl::Result error_ = nccl::kSuccess;  // of the communicator, first seen at error_since_
  std::chrono::steady_clock::time_point error_since_;

  mutable Mutex mutex_;
  c10::Event ready_ STRAIT_GUARDED_BY(mutex_);  // recorded by the trainer's stream
  std::exception_ptr failure_ STRAIT_GUARDED_BY(mutex_);
};

}  // namespace strait::stages
