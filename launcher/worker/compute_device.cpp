#include "launcher/worker/compute_device.h"

#include <ATen/ATen.h>
#include <ATen/DeviceAccelerator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <dlfcn.h>
#include <torch/headeronly/version.h>

#include "launcher/base/errors.h"
#include "launcher/base/machine.h"
#include "launcher/base/nvidia_driver.h"
#include "launcher/base/text.h"

namespace strait::worker {

std::optional<Accelerators> accelerators_here() {
  const std::optional<at::DeviceType> type = at::getAccelerator();
  // Other device types lack float64, in which losses and norms are summed.
  if (type != at::kCUDA && type != at::kPrivateUse1) return std::nullopt;
  const std::int64_t count = static_cast<std::uint8_t>(at::accelerator::deviceCount());
  if (count == 0) return std::nullopt;
  return Accelerators{*type, count};
}

at::Device choose_device(recipe::Device requested, const std::optional<Accelerators>& here,
                         std::int64_t index, const std::string& process) {
  const bool gpus = here && here->type == at::kCUDA;
  if (requested == recipe::Device::cuda && !gpus) {
    throw base::UserError(
        base::ExitCode::bad_input,
        "model.device is \"cuda\", but {} has no GPU that it can use ({}); set model.device = "
        "\"cpu\", or leave it at \"auto\", which takes a GPU where there is one",
        process,
        at::globalContext().hasCUDART()
            ? "none is visible: see nvidia-smi and CUDA_VISIBLE_DEVICES there"
            : "its libtorch is built for CPUs: install one with CUDA");
  }
  if (requested == recipe::Device::cpu || !here) return at::kCPU;
  return {here->type, static_cast<at::DeviceIndex>(index % here->count)};
}

std::vector<std::int64_t> accelerator_memory() {
  const std::optional<Accelerators> here = accelerators_here();
  if (!here || here->type != at::kCUDA) return {};
  // Asks the driver, because libtorch would create a context on each GPU.
  return base::gpu_memory_here();
}

std::int64_t peak_device_memory(at::Device device) {
  if (device.is_cpu()) return 0;
  auto* const allocator = dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(device.type()));
  if (allocator == nullptr || !allocator->initialized()) return 0;
  constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return allocator->getDeviceStats(device.index()).allocated_bytes.at(kAll).peak;
}

namespace {

std::string gpu_memory_text(const base::NvidiaDriver::Gpu& gpu, at::Device device,
                            std::int64_t planned) {
  std::string text =
      fmt::format("; of {}: {} planned, {} of tensors at the peak", device.str(),
                  base::byte_text(planned), base::byte_text(peak_device_memory(device)));
  if (gpu.memory_bytes) text += fmt::format(", {} there", base::byte_text(*gpu.memory_bytes));
  if (gpu.free_bytes) {
    text += fmt::format(", {} free", base::byte_text(*gpu.free_bytes));
  }
  return text;
}

std::string gpu_text(const base::NvidiaDriver::Gpu& gpu) {
  std::string text = gpu.name;
  if (gpu.memory_bytes) text += ", " + base::byte_text(*gpu.memory_bytes);
  if (gpu.free_bytes) text += fmt::format(" ({} free)", base::byte_text(*gpu.free_bytes));
  if (gpu.celsius) text += fmt::format(", {} °C", *gpu.celsius);
  if (gpu.busy_percent) text += fmt::format(", {} % busy", *gpu.busy_percent);
  return text;
}

// Uses integers so small that every sum is exact, in any order and with TF32.
DeviceCheck check_product(at::Device device) {
  constexpr std::int64_t kSize = 512;
  constexpr int kTimes = 4;  // the first product loads code
  const at::Tensor numbers = at::arange(kSize * kSize, at::kFloat).remainder_(7).sub_(3);
  const at::Tensor square = numbers.view({kSize, kSize});
  const at::Tensor expected = square.to(at::kLong).matmul(square.t().to(at::kLong)).to(at::kFloat);
  try {
    const at::Tensor there = square.to(device);
    at::Tensor product;
    double quickest = std::numeric_limits<double>::infinity();
    for (int i = 0; i < kTimes; ++i) {
      const auto start = std::chrono::steady_clock::now();
      product = there.matmul(there.t());
      if (!device.is_cpu()) at::accelerator::synchronizeDevice(device.index());
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
      quickest = std::min(quickest, taken.count());
    }
    const double flops = 2.0 * kSize * kSize * kSize / quickest;
    const bool right = product.cpu().equal(expected);
    return {right, fmt::format("{}: a product of 512 x 512 values is {} ({:.0f} Gflop/s)",
                               device.str(), right ? "right" : "wrong", flops / 1e9)};
  } catch (const c10::Error& error) {
    return {false, fmt::format("{}: {}", device.str(), error.what_without_backtrace())};
  }
}

// Which libtorch this process has loaded, and why it uses GPUs or does not.
DeviceCheck check_libtorch(bool has_driver) {
  Dl_info loaded{};
  ::dladdr(reinterpret_cast<const void*>(&at::globalContext), &loaded);
  const std::filesystem::path library = loaded.dli_fname;
  const std::string there = library.lexically_normal().parent_path().string();
  const std::string& fault = base::load_libtorch_cuda();
  if (!fault.empty()) {
    return {false,
            fmt::format(
                "libtorch {} in {} cannot load its part for GPUs ({}); install torch again there",
                TORCH_VERSION, there, fault)};
  }
  return {true, fmt::format("libtorch {} {}, in {}{}", TORCH_VERSION,
                            base::libtorch_has_cuda() ? "with CUDA" : "for CPUs", there,
                            has_driver ? "" : "; no NVIDIA driver is here, so CPUs are used")};
}

}  // namespace

std::vector<DeviceCheck> check_devices() {
  const std::optional<Accelerators> here = accelerators_here();
  const auto driver = base::nvidia_driver();
  std::vector<DeviceCheck> checks = {check_libtorch(driver.has_value())};
  if (driver) {
    for (const base::NvidiaDriver::Gpu& gpu : driver->gpus) {
      checks.push_back({true, fmt::format("driver {}: {}", driver->version, gpu_text(gpu))});
    }
    if (!driver->gpus.empty() && !here) {
      checks.push_back(
          {true, at::globalContext().hasCUDART()
                     ? "no GPU is visible to this build: see CUDA_VISIBLE_DEVICES"
                     : fmt::format("its GPUs are not used: install torch {0} with CUDA: python3 -m "
                                   "pip install --force-reinstall 'torch=={0},!={0}+cpu'",
                                   TORCH_VERSION)});
    }
  }
  checks.push_back(check_product(at::kCPU));
  for (std::int64_t i = 0; here && i < here->count; ++i) {
    checks.push_back(check_product({here->type, static_cast<at::DeviceIndex>(i)}));
  }
  return checks;
}

void use_deterministic_algorithms() {
  at::Context& context = at::globalContext();
  // libtorch warns once for each operator that has no deterministic algorithm.
  context.setDeterministicAlgorithms(true, /*warn_only=*/true);
  // Otherwise libtorch would first fill new memory, all of which is written anyway.
  context.setDeterministicFillUninitializedMemory(false);
  context.setBenchmarkCuDNN(false);
  // cuBLAS needs a workspace for each stream, which libtorch gives it. Not CUBLAS_WORKSPACE_CONFIG
  // as well: libtorch parses that at every product, which took a third of a step (2.11 on an H100).
}

std::string memory_text(const plan::StageJob& job) {
  const plan::Plan::Process& own = job.plan.process(job.process);
  // Asks again, because choose_device() may not have been reached.
  const std::optional<Accelerators> here = accelerators_here();
  const bool on_gpu =
      here && here->type == at::kCUDA && job.plan.recipe.model.device != recipe::Device::cpu;
  const std::int64_t planned = on_gpu ? job.plan.host_bytes(own) : job.plan.memory_bytes(own);
  std::string text =
      fmt::format("Memory: {} planned, {} at the peak, {} on this host", base::byte_text(planned),
                  base::byte_text(base::peak_memory()), base::byte_text(base::host_memory().total));
  if (!on_gpu) return text;
  const std::int64_t index = job.plan.index_on_host(own) % here->count;
  const std::vector<base::NvidiaDriver::Gpu> gpus = base::gpus_here();
  return text + gpu_memory_text(index < std::ssize(gpus) ? gpus[static_cast<std::size_t>(index)]
                                                         : base::NvidiaDriver::Gpu{},
                                {at::kCUDA, static_cast<at::DeviceIndex>(index)},
                                plan::Plan::compute_bytes(own));
}

at::Device compute_device(const plan::StageJob& job) {
  const plan::Plan::Process& own = job.plan.process(job.process);
  const at::Device device =
      choose_device(job.plan.recipe.model.device, accelerators_here(), job.plan.index_on_host(own),
                    fmt::format("{} on host {}", job.process.describe(), own.host));
  if (!device.is_cpu()) use_deterministic_algorithms();
  const std::vector<std::int64_t> memory = accelerator_memory();
  if (device.is_cuda() && !memory.empty()) {
    plan::Plan plan = job.plan;
    plan.hosts[own.host_index].gpus = memory;
    plan::check_gpu_memory(plan, own.host_index);
  }
  return device;
}

}  // namespace strait::worker
