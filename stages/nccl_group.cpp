#include "stages/nccl_group.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <cstring>
#include <thread>

#include "framework/net/link_error.h"
#include "kernels/current_stream.h"

namespace strait::stages {
namespace {

using std::chrono::steady_clock;

// Pauses between polls of NCCL's threads, and of the device.
constexpr std::chrono::microseconds kCallPause{50};
constexpr std::chrono::milliseconds kSumPause{1};

// The id as the key of a hello.
std::string id_text(const nccl::UniqueId& id) { return {id.bytes.data(), id.bytes.size()}; }

double seconds(std::chrono::milliseconds limit) {
  return std::chrono::duration<double>(limit).count();
}

c10::Stream side_stream(at::Device device) {
  return c10::impl::VirtualGuardImpl(device.type())
      .getStreamFromGlobalPool(device, /*isHighPriority=*/true);
}

}  // namespace

sync::GroupHello NcclGroup::hello(const nccl::Library& library, const std::string& place,
                                  bool first) {
  sync::GroupHello hello{.kind = "NCCL", .version = library.version(), .place = place};
  if (!first) return hello;
  nccl::UniqueId id{};
  const nccl::Result result = library.functions().get_unique_id(&id);
  hello.key = id_text(id);
  if (result != nccl::kSuccess) {
    hello.obstacle = "NCCL makes no communicator: " + library.text(result, nullptr);
  }
  return hello;
}

NcclGroup::NcclGroup(std::shared_ptr<const nccl::Library> library, at::Tensor gradient,
                     at::Tensor weights, const sync::GroupHello& first, sync::Membership membership,
                     NcclLimits limits)
    : library_(std::move(library)),
      gradient_(std::move(gradient)),
      weights_(std::move(weights)),
      membership_(std::move(membership)),
      limits_(limits),
      stream_(side_stream(gradient_.device())),
      ready_(gradient_.device().type()) {
  nccl::UniqueId id{};
  TORCH_INTERNAL_ASSERT(first.key.size() == id.bytes.size(), "an id of NCCL of another size");
  std::memcpy(id.bytes.data(), first.key.data(), id.bytes.size());
  const c10::DeviceGuard guard(gradient_.device());
  nccl::Config config;
  const nccl::Result result =
      library_->functions().init_rank_config(&communicator_, static_cast<int>(membership_.count()),
                                             id, static_cast<int>(membership_.mine), &config);
  try {
    finish(result, "connecting", limits_.setup);
  } catch (const net::LinkError&) {
    abort();
    throw;
  }
  // Their memory must not be reused before this stream is done with it.
  gradient_.record_stream(stream_);
  if (weights_.defined()) weights_.record_stream(stream_);
}

NcclGroup::~NcclGroup() { abort(); }

// Not ncclCommDestroy, which waits for the other members. When sums are complete, every member has
// said so by its report of the step.
void NcclGroup::abort() {
  if (communicator_ == nullptr) return;
  const c10::DeviceGuard guard(gradient_.device());
  library_->functions().abort(std::exchange(communicator_, nullptr));
}

std::vector<std::uint32_t> NcclGroup::others() const {
  std::vector<std::uint32_t> others = membership_.members;
  others.erase(others.begin() + static_cast<std::ptrdiff_t>(membership_.mine));
  return others;
}

void NcclGroup::lose(const std::string& what, std::vector<std::uint32_t> replicas) const {
  if (replicas.empty()) replicas = others();
  throw net::LinkError(
      net::LinkError::Kind::lost,
      fmt::format("{} with {}: {}. NCCL_DEBUG=INFO in the environment of the run says more; "
                  "sync.group = \"never\" sums over links instead",
                  name(), sync::replicas_text(replicas), what));
}

void NcclGroup::finish(nccl::Result result, const char* doing, std::chrono::milliseconds limit) {
  const steady_clock::time_point deadline = steady_clock::now() + limit;
  while (result == nccl::kInProgress && steady_clock::now() < deadline) {
    // NCCL connects on its own threads, and has no call that waits with a deadline.
    std::this_thread::sleep_for(kCallPause);
    const nccl::Result asked = library_->functions().get_async_error(communicator_, &result);
    if (asked != nccl::kSuccess) result = asked;
  }
  if (result == nccl::kSuccess) return;
  lose(result == nccl::kInProgress
           ? fmt::format("{} took longer than {:.1f} s", doing, seconds(limit))
           : fmt::format("{} failed: {}", doing, library_->text(result, communicator_)),
       {});
}

void NcclGroup::values_ready() {
  const MutexLock lock(mutex_);
  ready_.record(kernels::current_stream(gradient_.device()));
}

void NcclGroup::wait_for_trainer() {
  const MutexLock lock(mutex_);
  ready_.block(stream_);
}

void NcclGroup::sum(sync::Range range) {
  if (range.count() == 0) return;
  const c10::DeviceGuard guard(gradient_.device());
  wait_for_trainer();
  float* const values = gradient_.mutable_data_ptr<float>() + range.first;
  const nccl::Result result = library_->functions().all_reduce(
      values, values, static_cast<std::size_t>(range.count()), nccl::kFloat32, nccl::kSum,
      communicator_, stream_.native_handle());
  finish(result, "beginning a sum", limits_.setup);
}

// A broadcast for each part: they have different sizes, and a member owns parts that are not next
// to each other. In one group of calls NCCL does them together.
void NcclGroup::gather(std::span<const sync::Part> parts,
                       const sync::WhileWaiting& /*while_waiting*/) {
  const c10::DeviceGuard guard(gradient_.device());
  wait_for_trainer();
  const nccl::Functions& functions = library_->functions();
  nccl::Result result = functions.group_start();
  for (const sync::Part& part : parts) {
    if (part.values() == 0 || (result != nccl::kSuccess && result != nccl::kInProgress)) continue;
    float* const values = weights_.mutable_data_ptr<float>() + part.range.first;
    result =
        functions.broadcast(values, values, part.values(), nccl::kFloat32,
                            static_cast<int>(part.owner), communicator_, stream_.native_handle());
  }
  const nccl::Result ended = functions.group_end();
  if (result == nccl::kSuccess || result == nccl::kInProgress) result = ended;
  finish(result, "beginning to gather weights", limits_.setup);
}

void NcclGroup::arrive() {
  c10::Event summed(gradient_.device().type());
  summed.record(stream_);
  summed.block(kernels::current_stream(gradient_.device()));
}

void NcclGroup::watch(const sync::WhileWaiting& while_waiting) {
  const steady_clock::time_point began = steady_clock::now();
  c10::Event summed(gradient_.device().type());
  summed.record(stream_);
  while (!summed.query()) {
    try {
      check_sums(while_waiting, began);
    } catch (const std::exception&) {
      // Another member that has its sums may have ended since.
      if (summed.query()) return;
      {
        // Recorded before the abort, because the abort ends the trainer's wait for the device.
        const MutexLock lock(mutex_);
        failure_ = std::current_exception();
      }
      abort();
      throw;
    }
    std::this_thread::sleep_for(kSumPause);
  }
}

void NcclGroup::check_sums(const sync::WhileWaiting& while_waiting,
                           steady_clock::time_point began) {
  const std::vector<std::uint32_t> silent = while_waiting(std::nullopt);
  const steady_clock::time_point now = steady_clock::now();
  if (error_ == nccl::kSuccess) {
    library_->functions().get_async_error(communicator_, &error_);
    if (error_ == nccl::kInProgress) error_ = nccl::kSuccess;
    error_since_ = now;
  }
  // NCCL reports an error before the link names the lost replica, so we wait for the name.
  if (error_ != nccl::kSuccess && (!silent.empty() || now > error_since_ + limits_.naming)) {
    lose("summing failed: " + library_->text(error_, communicator_), silent);
  }
  if (now > began + limits_.sums) {
    lose(fmt::format("sums took longer than {:.1f} s", seconds(limits_.sums)), silent);
  }
}

void NcclGroup::check() const {
  const MutexLock lock(mutex_);
  if (failure_ != nullptr) std::rethrow_exception(failure_);
}

}  // namespace strait::stages
