// Stands for libnccl.so.2 between threads of one process, on the test device: sums on the streams
// that it is given, in an order that is not that of the ranks.
#include "tests/device/nccl_stand_in.h"

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "tests/device/streams.h"
#include "tests/device/test_device.h"

namespace {

using strait::test_device::Gate;
using strait::test_device::Streams;
using strait::test_device::Ticket;

constexpr int kSuccess = 0;
constexpr int kSystemError = 2;
constexpr int kInvalidArgument = 4;
constexpr int kInvalidUsage = 5;
constexpr int kInProgress = 7;
constexpr int kVersion = 22907;
constexpr std::size_t kIdBytes = 128;
using Id = std::array<char, kIdBytes>;

// As the library's own header has them.
struct Config {
  std::size_t size;
  unsigned magic;
  unsigned version;
  int blocking;
};

strait::test_device::NcclFaults& faults() {
  static strait::test_device::NcclFaults all;
  return all;
}

int current_device() {
  return c10::impl::VirtualGuardImpl(c10::DeviceType::PrivateUse1).getDevice().index();
}

// One call of all ranks.
struct Operation {
  explicit Operation(std::size_t ranks) : given(ranks) {
    for (std::size_t i = 0; i < ranks; ++i) {
      gates.push_back(std::make_shared<Gate>());
      gates.back()->expected = ranks;
    }
  }
  std::vector<std::vector<float>> given;     // by rank, when its stream has come to it
  std::vector<std::shared_ptr<Gate>> gates;  // likewise
};

struct Clique {
  explicit Clique(std::size_t ranks) : size(ranks) {}
  const std::size_t size;
  std::mutex mutex;
  std::map<int, int> devices;  // by rank, of those that are there
  std::map<std::size_t, std::shared_ptr<Operation>> operations;
};

std::mutex all_mutex;
std::map<Id, std::shared_ptr<Clique>>& all_cliques() {
  static std::map<Id, std::shared_ptr<Clique>> all;
  return all;
}
thread_local std::string last_error;

struct Communicator {
  std::shared_ptr<Clique> clique;
  int rank = 0;
  int device = 0;
  std::size_t calls = 0;
  std::vector<std::shared_ptr<Operation>> operations;  // its own, for an abort
};

int refuse_call() {
  last_error = "of another type, operation, root or device";
  return kInvalidArgument;
}

// A call of this rank: its stream gives the values, waits until all ranks have given theirs, and
// goes on with `result`.
template <class Result>
int call_all(const void* from, Communicator* communicator, std::size_t count, int type,
             void* stream_handle, const Result& result) {
  constexpr int kFloat32 = 7;
  const c10::Stream stream = strait::test_device::stream_of_handle(stream_handle);
  if (type != kFloat32 || stream.device_index() != communicator->device ||
      current_device() != communicator->device) {
    return refuse_call();
  }
  const auto rank = static_cast<std::size_t>(communicator->rank);
  Clique& clique = *communicator->clique;
  const std::scoped_lock lock(clique.mutex);
  std::shared_ptr<Operation>& shared = clique.operations[communicator->calls++];
  if (shared == nullptr) shared = std::make_shared<Operation>(clique.size);
  const std::shared_ptr<Operation> one = shared;
  communicator->operations.push_back(one);
  Streams& streams = Streams::all();
  streams.issue(stream, [one, rank, from, count] {
    const auto* const values = static_cast<const float*>(from);
    one->given[rank].assign(values, values + count);
  });
  const Ticket given = streams.last(stream);
  for (std::size_t other = 0; other < clique.size; ++other) {
    if (faults().silent_rank == communicator->rank && other != rank) continue;
    streams.add(*one->gates[other], given);
  }
  streams.hold(stream, one->gates[rank]);
  streams.issue(stream, [one, result] { result(*one); });
  return kInProgress;
}

}  // namespace

extern "C" {

strait::test_device::NcclFaults* nccl_faults() { return &faults(); }

int ncclGetVersion(int* version) {
  *version = kVersion;
  return kSuccess;
}

int ncclGetUniqueId(Id* id) {
  static std::atomic<std::uint64_t> made = 0;
  const std::uint64_t number = ++made;
  id->fill('\0');
  std::memcpy(id->data() + 1, &number, sizeof number);  // a text that begins with zero
  return kSuccess;
}

int ncclCommInitRankConfig(Communicator** made, int ranks, Id id, int rank, const Config* config) {
  if (config->magic != 0xcafebeef || config->size < sizeof(Config) || config->blocking != 0) {
    last_error = "not a configuration of 2.14 or later that does not block";
    return kInvalidArgument;
  }
  const std::scoped_lock lock(all_mutex);
  std::shared_ptr<Clique>& clique = all_cliques()[id];
  if (clique == nullptr) clique = std::make_shared<Clique>(static_cast<std::size_t>(ranks));
  const std::scoped_lock inner(clique->mutex);
  for (const auto& [other, device] : clique->devices) {
    if (device != current_device()) continue;
    last_error = "Duplicate GPU detected";
    return kInvalidUsage;
  }
  clique->devices[rank] = current_device();
  *made = new Communicator{clique, rank, current_device(), 0, {}};
  return kInProgress;
}

int ncclCommGetAsyncError(Communicator* communicator, int* error) {
  const std::scoped_lock lock(communicator->clique->mutex);
  const bool connected = communicator->clique->devices.size() == communicator->clique->size &&
                         !faults().connects_never;
  *error = connected ? faults().async_error.load() : kInProgress;
  if (faults().connect_error != kSuccess) *error = faults().connect_error;
  if (*error == kSystemError) last_error = "Connection refused";
  return kSuccess;
}

int ncclAllReduce(const void* from, void* to, std::size_t count, int type, int operation,
                  Communicator* communicator, void* stream_handle) {
  if (operation != 0) return refuse_call();
  return call_all(from, communicator, count, type, stream_handle,
                  [to, count](const Operation& one) {
                    auto* const sum = static_cast<float*>(to);
                    std::fill_n(sum, count, 0.0F);
                    for (std::size_t other = one.given.size(); other-- > 0;) {
                      if (one.given[other].size() != count) continue;  // aborted
                      for (std::size_t i = 0; i < count; ++i) sum[i] += one.given[other][i];
                    }
                  });
}

int ncclBroadcast(const void* from, void* to, std::size_t count, int type, int root,
                  Communicator* communicator, void* stream_handle) {
  if (root < 0 || static_cast<std::size_t>(root) >= communicator->clique->size)
    return refuse_call();
  return call_all(from, communicator, count, type, stream_handle, [to, root](const Operation& one) {
    const auto& given = one.given[static_cast<std::size_t>(root)];
    std::ranges::copy(given, static_cast<float*>(to));  // none if it was aborted
  });
}

// Calls between these are made at once here.
int ncclGroupStart() { return kSuccess; }
int ncclGroupEnd() { return kInProgress; }

int ncclCommAbort(Communicator* communicator) {
  for (const auto& one : communicator->operations) {
    Streams::all().open(*one->gates[static_cast<std::size_t>(communicator->rank)]);
  }
  delete communicator;
  return kSuccess;
}

const char* ncclGetErrorString(int result) {
  return result == kSystemError ? "unhandled system error" : "an error";
}

const char* ncclGetLastError(Communicator* /*communicator*/) { return last_error.c_str(); }

}  // extern "C"
