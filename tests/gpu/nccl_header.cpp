// Holds the declarations of stages/nccl_library.h against NCCL's own header.
#include <nccl.h>

#include <cstddef>
#include <type_traits>

#include "stages/nccl_library.h"

namespace nccl = strait::stages::nccl;

// Passed alike: enumerations as int, pointers as pointers, structures of one size.
template <class Ours, class Theirs>
constexpr bool kSame =
    sizeof(Ours) == sizeof(Theirs) && std::is_pointer_v<Ours> ==
                                          std::is_pointer_v<Theirs>&& std::is_class_v<Ours> ==
                                          std::is_class_v<Theirs>;

template <class Ours, class Theirs>
struct Call : std::false_type {};
template <class Result, class... Arguments, class OtherResult, class... Others>
struct Call<Result (*)(Arguments...), OtherResult (*)(Others...)> {
  static constexpr bool value = [] {
    if constexpr (sizeof...(Arguments) == sizeof...(Others)) {
      return kSame<Result, OtherResult> && (kSame<Arguments, Others> && ...);
    }
    return false;
  }();
};

#define SAME_CALL(member, function)                                                  \
  static_assert(Call<decltype(nccl::Functions::member), decltype(&function)>::value, \
                #function " is declared otherwise")
SAME_CALL(get_version, ncclGetVersion);
SAME_CALL(get_unique_id, ncclGetUniqueId);
SAME_CALL(init_rank_config, ncclCommInitRankConfig);
SAME_CALL(all_reduce, ncclAllReduce);
SAME_CALL(broadcast, ncclBroadcast);
SAME_CALL(group_start, ncclGroupStart);
SAME_CALL(group_end, ncclGroupEnd);
SAME_CALL(get_async_error, ncclCommGetAsyncError);
SAME_CALL(abort, ncclCommAbort);
SAME_CALL(get_error_string, ncclGetErrorString);
SAME_CALL(get_last_error, ncclGetLastError);

static_assert(nccl::kSuccess == ncclSuccess && nccl::kInProgress == ncclInProgress);
static_assert(nccl::kFloat32 == ncclFloat32 && nccl::kSum == ncclSum);
static_assert(nccl::kLeastVersion == NCCL_VERSION(2, 14, 0));
static_assert(sizeof(nccl::UniqueId) == sizeof(ncclUniqueId));
static_assert(offsetof(nccl::Config, size) == offsetof(ncclConfig_t, size));
static_assert(offsetof(nccl::Config, magic) == offsetof(ncclConfig_t, magic));
static_assert(offsetof(nccl::Config, version) == offsetof(ncclConfig_t, version));
static_assert(offsetof(nccl::Config, blocking) == offsetof(ncclConfig_t, blocking));
// Older headers have no name for the number.
constexpr ncclConfig_t kInitial = NCCL_CONFIG_INITIALIZER;
static_assert(nccl::Config().magic == kInitial.magic);
