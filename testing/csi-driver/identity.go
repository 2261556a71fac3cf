package main

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// The version that this driver reports.
const version = "1.0.0"

// Driver serves all three services of CSI.
type Driver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer
	csi.UnimplementedNodeServer
	options Options
	store   *Store
	loops   bool // images can be used here
	online  bool // a mounted ext4 can be grown here
}

// GetPluginInfo names the driver.
func (d *Driver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: d.options.Name, VendorVersion: version}, nil
}

// Probe answers as soon as the program serves: the store is open by then.
func (d *Driver) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}

// GetPluginCapabilities returns topology if there are segments, and online expansion.
func (d *Driver) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	service := func(kind csi.PluginCapability_Service_Type) *csi.PluginCapability {
		return &csi.PluginCapability{Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: kind}}}
	}
	response := &csi.GetPluginCapabilitiesResponse{}
	response.Capabilities = append(response.Capabilities, service(csi.PluginCapability_Service_CONTROLLER_SERVICE))
	if len(d.options.Segments) > 0 {
		response.Capabilities = append(response.Capabilities, service(csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS))
	}
	if !d.options.Without["expand"] {
		expansion := &csi.PluginCapability_VolumeExpansion{Type: csi.PluginCapability_VolumeExpansion_ONLINE}
		response.Capabilities = append(response.Capabilities, &csi.PluginCapability{
			Type: &csi.PluginCapability_VolumeExpansion_{VolumeExpansion: expansion},
		})
	}
	return response, nil
}
