// The recipe for released images, for amd64 and arm64:
//   VERSION=v0.1.0 PREFIX=registry.example.com/metrics-backend docker buildx bake --push
variable "VERSION" { default = "dev" }
variable "PREFIX" { default = "metrics-backend" }

group "default" { targets = ["operator", "serving"] }

target "image" {
  matrix    = { name = ["operator", "serving"] }
  name      = name
  context   = "."
  target    = name
  platforms = ["linux/amd64", "linux/arm64"]
  args      = { VERSION = VERSION }
  tags      = ["${PREFIX}/${name}:${VERSION}"]
}
