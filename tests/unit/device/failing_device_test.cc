// A device that fails in a step with whole gradients, or while its sum is brought to the host: nothing is lost.
#include <gtest/gtest.h>

#include <stdexcept>

#include "pretended_device/pretended_device.h"
#include "sparsewire/worker.h"
#include "unit/device/arrays.h"

namespace sparsewire::failing_device_test {
namespace {

using Numbers = std::vector<float>;

TEST(DenseOnAFailingDevice, TakesTheGradientBack) {
  run_on_threads(1, [](Transport& transport) {
    Worker worker({.sparsifier = "dense", .exchange = "dense"}, Layout(4), transport);
    const Numbers numbers = {1, 2, 3, 4};
    const device_test::Copy copy(numbers.data(), 4 * sizeof(float));
    Gradient gradient(copy.data(), NumberType::f32, 4);
    gradient.device = device_test::kDevice;
    device_test::fail_next_call();
    EXPECT_THROW(worker.step(gradient), std::runtime_error);
    EXPECT_EQ(worker.memory(), Numbers(4));
    EXPECT_EQ(worker.step(gradient).values, numbers);
  });
}

TEST(DenseOnAFailingDevice, BringsTheUpdateWhenItIsAskedForAgain) {
  run_on_threads(1, [](Transport& transport) {
    Worker worker({.sparsifier = "dense", .exchange = "dense"}, Layout(4), transport);
    const Numbers numbers = {1, 2, 3, 4};
    const device_test::Copy copy(numbers.data(), 4 * sizeof(float));
    Gradient gradient(copy.data(), NumberType::f32, 4);
    gradient.device = device_test::kDevice;
    worker.step(gradient, {.update_on_device = true});
    Numbers update(4);
    device_test::fail_next_call();
    EXPECT_THROW(worker.write_update(update), std::runtime_error);
    worker.write_update(update);
    EXPECT_EQ(update, numbers);
  });
}

}  // namespace
}  // namespace sparsewire::failing_device_test
