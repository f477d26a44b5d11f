// Operators of the test device: each is put on the current stream and runs there on the host's
// kernels, over the device's memory. What the host must know at once, the sizes of results, comes
// from a run on zeros.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <set>
#include <string>
#include <unordered_map>

#include "framework/mixed_bits.h"
#include "tests/device/streams.h"
#include "tests/device/test_device.h"
#include "tests/device/waits.h"

namespace strait::test_device {
namespace {

using torch::jit::Stack;

bool is_ours(const at::Tensor& tensor) { return tensor.defined() && tensor.is_privateuseone(); }

at::Tensor empty_on(c10::Device device, at::IntArrayRef sizes, at::IntArrayRef strides,
                    at::ScalarType type) {
  const c10::DeviceGuard guard(device);
  return at::detail::empty_strided_generic(
      sizes, strides, c10::GetAllocator(c10::DeviceType::PrivateUse1),
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), type);
}

// A tensor of the host over the device's memory: it does not keep it alive.
at::Tensor over_memory(const at::Tensor& tensor) {
  TORCH_CHECK(!tensor.is_conj() && !tensor.is_neg(), "the test device knows no lazy conjugates");
  at::Tensor over = at::from_blob(const_cast<void*>(tensor.const_data_ptr()), tensor.sizes(),
                                  tensor.strides(), at::TensorOptions(tensor.scalar_type()));
  return over;
}

// Values of the host's tensors are read when the operator is called.
at::Tensor copy_of_host(const at::Tensor& tensor) {
  at::Tensor copy = tensor.clone();
  // A number, for the rules of types.
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    copy.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  return copy;
}

at::Tensor zeros_of(const at::Tensor& tensor) {
  std::int64_t values = tensor.numel() == 0 ? 0 : 1;
  for (std::int64_t i = 0; values > 0 && i < tensor.dim(); ++i) {
    values += (tensor.size(i) - 1) * tensor.stride(i);
  }
  return at::zeros({values}, at::TensorOptions(tensor.scalar_type()))
      .as_strided(tensor.sizes(), tensor.strides());
}

// `value` with f of every tensor in it.
template <class F>
c10::IValue with_tensors(const c10::IValue& value, F f) {
  if (value.isTensor()) return f(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(f(tensor));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const auto& tensor : value.toOptionalTensorVector()) {
      list.push_back(tensor ? std::optional(f(*tensor)) : std::nullopt);
    }
    return list;
  }
  return value;
}

// An operator, without arguments: work that has not run may hold it.
class Operator {
 public:
  explicit Operator(const c10::OperatorHandle& handle) : handle_(handle) {}

  const std::string& name() const { return handle_.schema().name(); }
  std::size_t arguments() const { return handle_.schema().arguments().size(); }
  std::size_t results() const { return handle_.schema().returns().size(); }

  // The argument that this result is; nullopt: a new tensor.
  std::optional<std::size_t> argument_of_result(std::size_t result) const {
    const c10::AliasInfo* const alias = handle_.schema().returns()[result].alias_info();
    if (alias == nullptr) return std::nullopt;
    TORCH_CHECK(alias->isWrite(), name(), " makes a view: the test device lacks a kernel for it");
    for (std::size_t i = 0; i < arguments(); ++i) {
      const c10::AliasInfo* const own = handle_.schema().arguments()[i].alias_info();
      if (own != nullptr && own->beforeSets() == alias->beforeSets()) return i;
    }
    TORCH_INTERNAL_ASSERT(false, name(), " returns what it was not given");
  }

  bool takes_generator(std::size_t i) const {
    const c10::TypePtr& type = handle_.schema().arguments()[i].type();
    return type->kind() == c10::TypeKind::OptionalType &&
           type->containedType(0)->kind() == c10::TypeKind::GeneratorType;
  }

  // Sizes of results, or results that are no tensors, are a matter of the arguments' values.
  bool needs_values() const {
    static const std::set<std::string> kNames{"aten::_unique",       "aten::_unique2",
                                              "aten::unique_dim",    "aten::nonzero",
                                              "aten::masked_select", "aten::unique_consecutive",
                                              "aten::bincount",      "aten::repeat_interleave"};
    return kNames.contains(name()) ||
           std::ranges::any_of(handle_.schema().returns(), [](const c10::Argument& result) {
             const auto kind = result.type()->kind();
             return kind != c10::TypeKind::TensorType && kind != c10::TypeKind::ListType;
           });
  }

  // Leaves the results in place of the arguments.
  void run(Stack& stack) const {
    const at::AutoDispatchBelowADInplaceOrView below;
    handle_.callBoxed(stack);
  }

  // The tensors among `values` that are not arguments.
  std::vector<at::Tensor> new_tensors(const Stack& values) const {
    std::vector<at::Tensor> tensors;
    for (std::size_t i = 0; i < results(); ++i) {
      if (argument_of_result(i)) continue;
      with_tensors(values[i], [&](const at::Tensor& tensor) {
        if (tensor.defined()) tensors.push_back(tensor);
        return tensor;
      });
    }
    return tensors;
  }

 private:
  c10::OperatorHandle handle_;
};

// What an operator was called with.
class Call {
 public:
  Call(const Operator& op, const Stack& stack) : op_(op) {
    const auto view = torch::jit::last(stack, op.arguments());
    arguments_.assign(view.begin(), view.end());
    find_device();
  }

  c10::Device device() const { return device_; }

  bool has_mask() const {
    bool mask = false;
    for (const c10::IValue& argument : arguments_) {
      if (!argument.isOptionalTensorList()) continue;
      with_tensors(argument, [&](const at::Tensor& index) {
        mask = mask || index.scalar_type() == at::kBool || index.scalar_type() == at::kByte;
        return index;
      });
    }
    return mask;
  }

  // The one that it draws from; undefined: it does not.
  at::Generator generator() const {
    for (std::size_t i = 0; i < arguments_.size(); ++i) {
      if (!op_.takes_generator(i)) continue;
      return host_generator(arguments_[i].isNone() ? default_generator(device_.index())
                                                   : arguments_[i].toGenerator());
    }
    return {};
  }

  // The arguments for the host's kernels, with `f` of each of our tensors. One that is given twice
  // is one tensor there, too.
  template <class F>
  Stack on_host(F f, const at::Generator& generator) const {
    std::unordered_map<const c10::TensorImpl*, at::Tensor> known;
    Stack stack;
    for (std::size_t i = 0; i < arguments_.size(); ++i) {
      const c10::IValue& argument = arguments_[i];
      if (argument.isDevice()) {
        stack.emplace_back(c10::Device(c10::DeviceType::CPU));
      } else if (op_.takes_generator(i)) {
        stack.emplace_back(generator);
      } else {
        stack.push_back(with_tensors(argument, [&](const at::Tensor& tensor) {
          if (!tensor.defined()) return tensor;
          if (!is_ours(tensor)) return copy_of_host(tensor);
          const auto [found, is_new] = known.try_emplace(tensor.unsafeGetTensorImpl());
          if (is_new) found->second = f(tensor);
          return found->second;
        }));
      }
    }
    return stack;
  }

  // `values`: what the host's kernels gave. Puts tensors of the device with these sizes into its
  // place and returns those of the host over their memory, in order.
  std::vector<at::Tensor> make_results(Stack& values) const {
    std::vector<at::Tensor> over;
    for (std::size_t i = 0; i < op_.results(); ++i) {
      if (const auto argument = op_.argument_of_result(i)) {
        values[i] = arguments_[*argument];
        continue;
      }
      values[i] = with_tensors(values[i], [&](const at::Tensor& like) {
        if (!like.defined()) return like;
        at::Tensor result = empty_on(device_, like.sizes(), like.strides(), like.scalar_type());
        over.push_back(over_memory(result));
        return result;
      });
    }
    return over;
  }

 private:
  void find_device() {
    std::optional<c10::Device> found;
    bool host_values = false;
    const auto look = [&](const at::Tensor& tensor) {
      if (is_ours(tensor)) {
        TORCH_CHECK(!found || *found == tensor.device(), op_.name(), " is given tensors on ",
                    *found, " and ", tensor.device());
        found = tensor.device();
      } else if (tensor.defined() && tensor.dim() > 0) {
        host_values = true;
      }
      return tensor;
    };
    for (const c10::IValue& argument : arguments_) with_tensors(argument, look);
    for (const c10::IValue& argument : arguments_) {
      if (!found && argument.isDevice()) found = argument.toDevice();
    }
    TORCH_INTERNAL_ASSERT(found, op_.name(), " has no device");
    // As on a GPU: indices and numbers may lie on the host.
    TORCH_CHECK(!host_values || op_.name().starts_with("aten::index") ||
                    op_.name().starts_with("aten::_index_put"),
                op_.name(), " is given tensors on ", *found, " and on the host");
    device_ = current_stream(*found).device();
  }

  const Operator& op_;
  Stack arguments_;
  c10::Device device_{c10::DeviceType::CPU};
};

void put(const at::Tensor& to, const at::Tensor& from, const std::string& name) {
  TORCH_CHECK(to.sizes() == from.sizes(), name, " gives ", from.sizes(), " where zeros gave ",
              to.sizes(), ": its shape depends on values");
  to.copy_(from);
}

void run_now(const c10::Stream& stream, const Streams::Work& work) {
  Streams::all().issue(stream, work);
  Streams::all().finish(Streams::all().last(stream));
}

// What an operator that was issued with this setting of libtorch finds when its turn comes.
class WarnOnly {
 public:
  explicit WarnOnly(bool warn_only) { set(warn_only); }
  ~WarnOnly() { set(before_); }
  WarnOnly(const WarnOnly&) = delete;
  WarnOnly& operator=(const WarnOnly&) = delete;

 private:
  static void set(bool warn_only) {
    at::Context& context = at::globalContext();
    context.setDeterministicAlgorithms(context.deterministicAlgorithms(), warn_only);
  }
  const bool before_ = at::globalContext().deterministicAlgorithmsWarnOnly();
};

void on_stream(const c10::OperatorHandle& handle, Stack* stack) {
  const Operator op(handle);
  const Call call(op, *stack);
  const c10::Stream stream = current_stream(call.device());
  Stack results;
  if (op.needs_values() || call.has_mask()) {
    count_wait(Wait::value_shape, op.name());
    results = call.on_host(over_memory, call.generator());
    run_now(stream, [&] { op.run(results); });
    const std::vector<at::Tensor> from = op.new_tensors(results);
    Streams::all().issue(stream, [op, from, to = call.make_results(results)] {
      for (std::size_t i = 0; i < to.size(); ++i) put(to[i], from[i], op.name());
    });
  } else {
    std::vector<std::pair<at::Tensor, at::Tensor>> zeros;
    at::Generator generator = call.generator();
    // What the work will draw, the run on zeros draws, too.
    const at::Generator copy = generator.defined() ? generator.clone() : generator;
    results = call.on_host(
        [&](const at::Tensor& tensor) {
          return zeros.emplace_back(tensor, zeros_of(tensor)).second;
        },
        generator);
    op.run(results);
    for (const auto& [tensor, zero] : zeros) {
      if (tensor.sizes() != zero.sizes()) tensor.resize_(zero.sizes());
    }
    const Stack arguments = call.on_host(over_memory, copy);
    const bool warn_only = at::globalContext().deterministicAlgorithmsWarnOnly();
    Streams::all().issue(stream, [op, arguments, warn_only, to = call.make_results(results)] {
      const WarnOnly as_issued(warn_only);
      Stack own = arguments;
      op.run(own);
      const std::vector<at::Tensor> from = op.new_tensors(own);
      for (std::size_t i = 0; i < to.size(); ++i) put(to[i], from[i], op.name());
    });
  }
  torch::jit::drop(*stack, op.arguments());
  stack->insert(stack->end(), results.begin(), results.end());
}

// ---- copies

// Copies between two devices are on the source's stream; the other one's waits on both sides.
void copy_on_device(const at::Tensor& from, const at::Tensor& to) {
  const c10::Stream stream = current_stream(from.device());
  const c10::Stream other = current_stream(to.device());
  Streams::all().wait(Streams::all().last(other), stream);
  Streams::all().issue(stream,
                       [from = over_memory(from), to = over_memory(to)] { to.copy_(from); });
  Streams::all().wait(Streams::all().last(stream), other);
}

void copy_to_host(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  const c10::Stream stream = current_stream(from.device());
  const bool late = non_blocking && to.is_contiguous() && is_pinned(to);
  if (late) {
    return Streams::all().issue(stream, [from = over_memory(from), to = over_memory(to),
                                         block = begin_copy(to)] { to.copy_(from); });
  }
  const auto work = [from = over_memory(from), to] { to.copy_(from); };
  count_wait(Wait::to_host, "copy_");
  run_now(stream, work);
}

void copy_from_host(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  const c10::Stream stream = current_stream(to.device());
  const bool direct = from.is_contiguous() && from.dtype() == to.dtype() && is_pinned(from);
  if (direct && non_blocking) {
    return Streams::all().issue(stream, [from = over_memory(from), to = over_memory(to),
                                         block = begin_copy(from)] { to.copy_(from); });
  }
  // Memory that is not pinned is read at once, then the host may go on.
  const at::Tensor staged = non_blocking ? from.clone() : from;
  const auto work = [from = staged, to = over_memory(to)] { to.copy_(from); };
  if (non_blocking) return Streams::all().issue(stream, work);
  count_wait(Wait::from_host, "copy_");
  run_now(stream, work);
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  const at::Tensor source = from.expand(to.sizes()).detach();
  const at::Tensor target = to.detach();
  if (to.numel() == 0) return to;
  if (is_ours(from) && is_ours(to)) {
    copy_on_device(source, target);
  } else if (is_ours(from)) {
    copy_to_host(source, target, non_blocking);
  } else {
    copy_from_host(source, target, non_blocking);
  }
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  to.resize_(from.sizes());
  return copy_from(from, to, false);
}

at::Scalar read_scalar(const at::Tensor& tensor) {
  count_wait(Wait::scalar, "_local_scalar_dense");
  at::Scalar value;
  run_now(current_stream(tensor.device()),
          [&value, from = over_memory(tensor)] { value = at::_local_scalar_dense(from); });
  return value;
}

// ---- tensors and views

c10::Device device_or_current(std::optional<c10::Device> device) {
  return current_stream(device.value_or(c10::Device(c10::DeviceType::PrivateUse1))).device();
}

at::Tensor empty(at::IntArrayRef sizes, std::optional<at::ScalarType> type,
                 std::optional<at::Layout> /*layout*/, std::optional<at::Device> device,
                 std::optional<bool> /*pinned*/, std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(device_or_current(device));
  return at::detail::empty_generic(sizes, c10::GetAllocator(c10::DeviceType::PrivateUse1),
                                   c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(type), format);
}

at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides,
                         std::optional<at::ScalarType> type, std::optional<at::Layout> /*layout*/,
                         std::optional<at::Device> device, std::optional<bool> /*pinned*/) {
  return empty_on(device_or_current(device), sizes, strides, c10::dtype_or_default(type));
}

// A larger storage than it has is a new one, with the former values.
const at::Tensor& resize(const at::Tensor& tensor, at::IntArrayRef sizes,
                         std::optional<at::MemoryFormat> /*format*/) {
  c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
  const std::size_t bytes = at::detail::computeStorageNbytesContiguous(
      sizes, tensor.element_size(), static_cast<std::size_t>(tensor.storage_offset()));
  if (bytes > storage->nbytes()) {
    const c10::DeviceGuard guard(tensor.device());
    c10::DataPtr larger = c10::GetAllocator(c10::DeviceType::PrivateUse1)->allocate(bytes);
    Streams::all().issue(current_stream(tensor.device()),
                         [to = larger.get(), from = storage->data(), held = storage->nbytes()] {
                           if (held > 0) std::memcpy(to, from, held);
                         });
    storage->set_data_ptr_noswap(std::move(larger));
    storage->set_nbytes(bytes);
  }
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return tensor;
}

// The mask that kernels::keep_mask() draws on a CPU, so that results can be held against it.
at::Tensor& draw_mask(at::Tensor& mask, double kept, std::optional<at::Generator> generator) {
  Streams::all().issue(
      current_stream(mask.device()), [mask = over_memory(mask), key = generator->current_seed(),
                                      bound = static_cast<std::uint64_t>(kept * 0x1p32)] {
        bool* const values = mask.data_ptr<bool>();
        for (std::int64_t i = 0; i < mask.numel(); ++i) {
          const std::uint64_t draws = mixed_bits(key + static_cast<std::uint64_t>(i / 2));
          values[i] = ((i % 2 == 0 ? draws : draws >> 32U) & 0xffffffffU) < bound;
        }
      });
  return mask;
}

void record_stream(at::Tensor& tensor, c10::Stream stream) {
  void* const block = tensor.storage().data_ptr().get_context();
  if (block != nullptr) Streams::all().record(block, stream);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&on_stream>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("_copy_from", TORCH_FN(copy_from));
  library.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
  library.impl("_local_scalar_dense", TORCH_FN(read_scalar));
  library.impl("empty.memory_format", TORCH_FN(empty));
  library.impl("empty_strided", TORCH_FN(empty_strided));
  library.impl("resize_", TORCH_FN(resize));
  library.impl("record_stream", TORCH_FN(record_stream));
  library.impl("bernoulli_.float", TORCH_FN(draw_mask));
  library.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  library.impl("view", TORCH_FN(at::native::view));
  library.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  library.impl("unfold", TORCH_FN(at::native::unfold));
  // Kernels of its own (flash_attention.cpp), as a GPU has them; this says nothing else.
  for (const char* name : {"_flash_attention_forward", "_flash_attention_backward"}) {
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&on_stream>());
  }
}

}  // namespace
}  // namespace strait::test_device
